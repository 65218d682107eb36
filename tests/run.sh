#!/usr/bin/env bash
# Installs what is missing, builds everything into build/ and runs the tests. The last lines are ctest's own summary.
#
#   tests/run.sh [--long] [--build DIR] [ctest options, e.g. -R 'Ledger|Ring']
#
#   --long        also the tests labelled `long`
#   --build DIR   build there instead of build/
set -euo pipefail
cd "$(dirname "$0")/.."

build=build
selection=(-LE long)
while [[ $# -gt 0 ]]; do
  case $1 in
    --long) selection=() ;;
    --build)
      build=${2:?"--build: expected a folder"}
      shift
      ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) break ;;
  esac
  shift
done

deploy/packages.sh build test
tests/deploy/environment.sh || true # what it lacks it says, and those tests are skipped
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMETP_TESTS=ON -DMETP_SERVICES=ON
cmake --build "$build"
exec ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)" "${selection[@]}" "$@"
