#!/usr/bin/env bash
# Inside the image: starts a coordinator and four workers on 127.0.0.1 and trains the quickstart's job on them. Its exit
# code is that of `metpctl submit --watch`.
#
#   docker run --rm -v "$PWD/deploy/image/job.sh:/tmp/job.sh:ro" metp bash /tmp/job.sh
set -euo pipefail

folder=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap finish EXIT

# Waits for CONDITION (a command) as long as the program started last runs, 60 s at most.
await() { # NAME CONDITION ...
  local deadline=$((SECONDS + 60))
  until "${@:2}"; do
    if ! kill -0 "${pids[-1]}" 2>/dev/null || ((SECONDS > deadline)); then
      cat "$folder/$1.log" >&2
      exit 1
    fi
    sleep 0.1
  done
}

metp-coordinator --listen 127.0.0.1:0 --http 127.0.0.1:0 --state "$folder/state" --ready-file "$folder/ready" \
  >"$folder/coordinator.log" 2>&1 &
pids+=($!)
await coordinator test -e "$folder/ready"
coordinator=$(sed -n 's/.*"listen":"\([^"]*\)".*/\1/p' "$folder/ready")
for i in 0 1 2 3; do
  metp-worker --coordinator "$coordinator" --name "worker-$i" --workers-here 4 --profile-cache "$folder/profiles" \
    >"$folder/worker-$i.log" 2>&1 &
  pids+=($!)
  await "worker-$i" grep -q ' ready: ' "$folder/worker-$i.log"
done
metpctl --coordinator "$coordinator" submit -f /usr/share/metp/examples/licenses-4k.yaml --watch
