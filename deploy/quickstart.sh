#!/usr/bin/env bash
# METP on this machine in one command: installs what the build needs, builds the programs, starts a coordinator and four
# workers on 127.0.0.1, trains a small model on them while you watch, and stops everything again.
#
#   deploy/quickstart.sh [--keep] [--job FILE]
#
#   --keep       leave the coordinator and the workers running, and say where they answer and how to stop them
#   --job FILE   another job file than deploy/examples/licenses-4k.yaml
#
# Besides Debian packages nothing is written outside build/ and a temporary folder, which is removed at the end (with
# --keep: not).
# shellcheck disable=SC2317  # functions called from traps
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/build/bin
workers=4
ready_seconds=30 # time a program may take to serve
stop_seconds=15  # time a program may take to stop before it is killed

keep=false
job=$root/deploy/examples/licenses-4k.yaml
folder=
names=() pids=() # what was started, in order
client=          # metpctl while it runs

say() { printf '%s\n' "$*" >&2; } # messages; stdout is metpctl's
fail() {
  say "quickstart: $1"
  [[ $# -lt 2 || ! -s $2 ]] || { say "--- the last lines of $(basename "$2"):" && tail -n 25 "$2" >&2; }
  exit 1
}

while [[ $# -gt 0 ]]; do
  case $1 in
    --keep) keep=true ;;
    --job)
      job=$(realpath -e -- "${2:-}" 2>/dev/null) || fail "--job: cannot read '${2:-}'"
      shift
      ;;
    -h | --help)
      sed -n '2,/^\(set\|# shellcheck\) /{/^set /d;/shellcheck/d;s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) fail "found '$1', expected --keep or --job FILE" ;;
  esac
  shift
done

running() { kill -0 "$1" 2>/dev/null; }

# Asks the given processes to stop, waits for them, and kills what is left after stop_seconds.
stop() {
  local pid deadline=$((SECONDS + stop_seconds))
  for pid in "$@"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "$@"; do
    while running "$pid" && ((SECONDS < deadline)); do sleep 0.05; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
}

finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM HUP # nothing interrupts the cleaning up
  [[ -z $client ]] || stop "$client"
  [[ $code -lt 128 ]] || say "quickstart: interrupted, stopping everything, the job too"
  if [[ ${#pids[@]} -gt 0 ]]; then
    stop "${pids[@]:1}" # the workers, with the ranks that they run
    stop "${pids[0]}"
  fi
  [[ -z $folder ]] || rm -rf -- "$folder"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# --- install and build ------------------------------------------------------------------------------------------------

"$root/deploy/packages.sh" build || fail "the packages are not there; see above"
mkdir -p "$root/build"
build_log=$root/build/quickstart.log
# An existing build folder keeps its settings; a new one builds no tests.
tests=()
[[ -f $root/build/build.ninja ]] || tests=(-DMETP_TESTS=OFF)
cmake -S "$root" -B "$root/build" -G Ninja "${tests[@]}" >"$build_log" 2>&1 || fail "configuring failed" "$build_log"
say "Building the programs (some minutes the first time) ..."
if [[ -t 2 ]]; then
  cmake --build "$root/build" --target metp-coordinator metp-worker metp-rank metpctl >&2 || fail "building failed; see above"
else
  cmake --build "$root/build" --target metp-coordinator metp-worker metp-rank metpctl >"$build_log" 2>&1 || fail "building failed" "$build_log"
fi

# --- start ------------------------------------------------------------------------------------------------------------

# Starts PROGRAM in a session of its own, so that Ctrl-C reaches this script alone, which then stops all in order.
start() { # NAME PROGRAM ARGUMENT ...
  : >"$folder/$1.log" # there before anybody looks into it
  setsid "$bin/$2" "${@:3}" </dev/null >>"$folder/$1.log" 2>&1 &
  names+=("$1")
  pids+=($!)
}

# Waits for CONDITION (a command), for the end of the program started last, or for ready_seconds.
await() { # CONDITION ...
  local name=${names[-1]} pid=${pids[-1]} deadline=$((SECONDS + ready_seconds))
  until "$@"; do
    running "$pid" || fail "$name ended before it was ready" "$folder/$name.log"
    ((SECONDS < deadline)) || fail "$name was not ready after $ready_seconds s" "$folder/$name.log"
    sleep 0.05
  done
}

ready_value() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$folder/ready"; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/metp-quickstart.XXXXXX")
start coordinator metp-coordinator --listen 127.0.0.1:0 --http 127.0.0.1:0 --ready-file "$folder/ready"
await test -e "$folder/ready"
coordinator=$(ready_value listen)
http=$(ready_value http)
for ((i = 0; i < workers; ++i)); do
  start "worker-$i" metp-worker --coordinator "$coordinator" --name "worker-$i" --http 127.0.0.1:0 --address 127.0.0.1 \
    --workers-here "$workers" --profile-cache "$root/build/profiles"
  await grep -q ' ready: ' "$folder/worker-$i.log"
done
say "Running: a coordinator and $workers workers. Status page: http://$http/   metrics: http://$http/metrics"

# --- train ------------------------------------------------------------------------------------------------------------

# Not in the foreground, where bash would keep signals waiting until it ends.
setsid "$bin/metpctl" --coordinator "$coordinator" submit -f "$job" --watch </dev/null &
client=$!
code=0
wait "$client" || code=$?
client=
if [[ $code -eq 2 || $code -eq 6 ]]; then # metpctl has said what is wrong with the job file
  say "quickstart: the job was not accepted"
elif [[ $code -ne 0 ]]; then
  say "quickstart: the job did not succeed (metpctl: exit code $code)"
  for name in "${names[@]}"; do
    [[ ! -s $folder/$name.log ]] || { say "--- $name:" && tail -n 5 "$folder/$name.log" >&2; }
  done
fi

if $keep; then
  say ""
  say "Still running:"
  say "  status page  http://$http/"
  say "  metrics      http://$http/metrics"
  say "  command line $bin/metpctl --coordinator $coordinator get"
  say "  logs         $folder"
  say "To stop it:    kill ${pids[*]} && rm -r $folder"
  trap - EXIT
else
  say "Stopping. To look around while it runs: deploy/quickstart.sh --keep"
fi
exit "$code"
