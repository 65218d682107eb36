#!/usr/bin/env bash
# Prometheus over one cluster, until ^C: prometheus.yaml with another address of the coordinator, data in a temporary folder.
#
#   deploy/prometheus/run.sh [--coordinator HOST:PORT] [--listen HOST:PORT] [--interval SECONDS]
#
#   --coordinator HOST:PORT   where the coordinator serves HTTP (default: 127.0.0.1:7071; quickstart.sh --keep prints it)
#   --listen HOST:PORT        where Prometheus serves (default: 127.0.0.1:9095; Debian's own service has 9090)
#   --interval SECONDS        between scrapes (default: 5)
#
# Needs Debian's package prometheus: deploy/packages.sh test.
# shellcheck disable=SC2317  # functions called from traps
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

coordinator=127.0.0.1:7071
listen=127.0.0.1:9095
interval=5
while [[ $# -gt 0 ]]; do
  case $1 in
    --coordinator | --listen | --interval)
      [[ $# -ge 2 && $2 =~ ^[A-Za-z0-9.:_-]+$ ]] || { echo "run.sh: $1: found '${2:-}', expected a value" >&2 && exit 2; }
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help)
      sed -n '2,/^# shellcheck/{/shellcheck/d;s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) echo "run.sh: found '$1', expected --coordinator, --listen or --interval" >&2 && exit 2 ;;
  esac
  shift
done
command -v prometheus >/dev/null || { echo "run.sh: prometheus missing: deploy/packages.sh test" >&2 && exit 77; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/metp-prometheus.XXXXXX")
server=
finish() {
  trap - EXIT
  trap '' INT TERM HUP
  [[ -z $server ]] || { kill "$server" 2>/dev/null && wait "$server"; } || true
  rm -rf -- "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

cp "$here/rules.yaml" "$folder"
sed "s/127\.0\.0\.1:7071/$coordinator/; s/interval: 5s/interval: ${interval}s/" "$here/prometheus.yaml" >"$folder/prometheus.yaml"
setsid prometheus --config.file="$folder/prometheus.yaml" --storage.tsdb.path="$folder/data" \
  --web.listen-address="$listen" </dev/null &
server=$!
wait "$server"
