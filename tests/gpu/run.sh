#!/usr/bin/env bash
# Runs the CUDA suites on this machine's GPU. Exits with 77, having said why, where there is none.
#
#   tests/gpu/run.sh [--build DIR | --programs DIR] [--bench]
#
#   --build DIR      build there instead of build-gpu/; programs that it has already are run as they are; folders count from
#                    the top of the tree
#   --programs DIR   run ready programs: a folder that `cmake --install build --component gpu --prefix DIR` made
#   --bench          then the benchmark too; its results are written to RESULTS.md beside the programs too
set -euo pipefail
cd "$(dirname "$0")/../.."

build="build-gpu"
programs=
bench=0
while [[ $# -gt 0 ]]; do
  case $1 in
    --build)
      build=${2:?"--build: expected a folder"}
      shift
      ;;
    --programs)
      programs=${2:?"--programs: expected a folder"}
      shift
      ;;
    --bench) bench=1 ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' tests/gpu/run.sh
      exit 0
      ;;
    *)
      echo "run.sh: unknown option $1; --help lists them" >&2
      exit 2
      ;;
  esac
  shift
done

skip() {
  echo "skipped: $1"
  exit 77
}

compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]] ||
  skip "no NVIDIA device on this machine (no /dev/nvidia0)"

wanted=(metp_gpu_tests)
((bench)) && wanted+=(metp_gpu_bench)

# Whether all that is wanted is in $programs.
ready() {
  local program
  for program in "${wanted[@]}"; do [[ -x $programs/$program ]] || return 1; done
}

if [[ -n $programs ]]; then
  ready || {
    echo "run.sh: $programs: expected ${wanted[*]} in it" >&2
    exit 2
  }
else
  programs=$build/bin
  if ! ready; then
    PATH=$PATH:/usr/local/cuda/bin
    for tool in nvcc cmake c++; do
      command -v "$tool" >/dev/null || skip "$build has no programs, and $tool is missing to build them"
    done
    generator=()
    command -v ninja >/dev/null && generator=(-G Ninja)
    cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DMETP_CUDA=ON -DMETP_SERVICES=OFF -DMETP_TESTS=ON
    cmake --build "$build" --parallel "$(nproc)" --target "${wanted[@]}"
  fi
fi

export METP_GOLDEN=$PWD/tests/golden
"$programs/metp_gpu_tests"
if ((bench)); then
  "$programs/metp_gpu_bench" --output "$programs/RESULTS.md"
  echo "written: $programs/RESULTS.md"
fi
