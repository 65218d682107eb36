#!/usr/bin/env bash
# Installs the Debian 12 packages that METP needs, as root or through sudo. Quick when they are all there.
#
#   deploy/packages.sh [--list] [build] [test] [runtime] [rdma] [image]        (default: build)
#
#   build     compiler, build tools and the libraries to build against
#   test      what tests/run.sh and .ci/run need beyond that
#   runtime   the shared libraries that built programs need (for an image)
#   rdma      what NCCL loads to use InfiniBand or RoCE (for an image)
#   image     what builds the image without a Docker daemon
#   --list    print the names and install nothing
# shellcheck disable=SC2034,SC1091  # the sets are read through a name reference; os-release is the system's
set -euo pipefail

build=(
  g++ cmake ninja-build ccache mold pkg-config git ca-certificates
  libgrpc++-dev protobuf-compiler-grpc              # gRPC and its code generator
  libprotobuf-dev protobuf-compiler libabsl-dev     # messages; Status, strings
  prometheus-cpp-dev libcivetweb-dev                # metrics and the HTTP server beneath
  libcurl4-openssl-dev                              # asked for by prometheus-cpp's CMake package
  zlib1g-dev                                        # checksums of checkpoints
  libdnnl-dev libhwy-dev                            # CPU backend: products, vectorised kernels
  libgloo-dev                                       # the ring over TCP
  libyaml-cpp-dev libcli11-dev nlohmann-json3-dev   # job files, command lines, JSON
  libsqlite3-dev                                    # the coordinator's store
)
test=(
  libgtest-dev libgmock-dev
  clang-14 clang-tidy-14 clang-format-14
  libclang-rt-14-dev libomp-14-dev llvm-14          # sanitizers, fuzzer, OpenMP and symbolizer for clang
  libboost-context-dev                              # stacks of the emulated CUDA threads, switched without system calls
  shellcheck curl procps
  prometheus                                        # the server and promtool: alerts and the queries of dashboards
  python3 python3-numpy                             # the executable specification
  chromium-headless-shell                           # draws the status page
  python3-venv                                      # Python packages that Debian does not have, in a folder of their own
)
runtime=(
  libstdc++6 libgcc-s1 libgomp1
  libgrpc++1.51 libgrpc29 libprotobuf32 libabsl20220623
  libprometheus-cpp-core1.0 libcivetweb1
  libdnnl2 libhwy1 libgloo0 libyaml-cpp0.7 libsqlite3-0 zlib1g
)
rdma=(libibverbs1 ibverbs-providers)
image=(buildah debootstrap)

die() {
  printf 'packages.sh: %s\n' "$*" >&2
  exit 1
}

wanted=()
sets=()
list=false
for argument in "$@"; do
  case $argument in
    build | test | runtime | rdma | image) sets+=("$argument") ;;
    --list) list=true ;;
    -h | --help)
      sed -n '2,/^# shellcheck/{/shellcheck/d;s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) die "found '$argument', expected build, test, runtime, rdma, image or --list" ;;
  esac
done
[[ ${#sets[@]} -gt 0 ]] || sets=(build)
for set in "${sets[@]}"; do
  declare -n names=$set
  wanted+=("${names[@]}")
done
if $list; then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi

# Sets $missing to the wanted packages that are not installed.
find_missing() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null |
    awk '$2 == "installed" { print $1 }') || true
  missing=()
  for package in "${wanted[@]}"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
}

system="an unknown system"
if [[ -r /etc/os-release ]]; then
  system=$(. /etc/os-release && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}")
fi
command -v dpkg-query >/dev/null ||
  die "found $system, expected Debian 12: elsewhere, build the image instead (docker build -t metp .)"
find_missing
[[ ${#missing[@]} -gt 0 ]] || exit 0
[[ $system == "debian 12" ]] ||
  die "found $system, expected Debian 12, whose library versions METP is built with. Not installed: ${missing[*]}." \
    "Build the image instead (docker build -t metp .)"

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || die "not root and no sudo. As root, run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"
}

printf 'Installing %d packages (%s) ...\n' "${#missing[@]}" "${sets[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A third-party source that cannot be reached fails the update, but not the packages wanted here: installing decides.
apt update >"$log" 2>&1 || printf 'packages.sh: apt-get update reported errors, going on\n' >&2
if ! apt install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
  tail -n 20 "$log" >&2
  die "apt-get could not install: ${missing[*]}. Its last words are above; the usual causes are no network, a proxy that" \
    "apt does not know (/etc/apt/apt.conf.d), or sources without Debian 12's main component"
fi
find_missing
[[ ${#missing[@]} -eq 0 ]] || die "apt-get succeeded, yet these are not installed: ${missing[*]}"
