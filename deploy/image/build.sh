#!/usr/bin/env bash
# Builds the image without a Docker daemon: buildah, over a base that debootstrap makes and that is named
# debian:bookworm-slim. Nothing is pulled. Needs root, and the network for Debian's packages alone.
#
#   deploy/image/build.sh [--target cpu|cuda] [--tag NAME] [--run] [--storage DIR]
#
#   --target T      the target of the Dockerfile (default: cpu). cuda needs the image that CUDA_IMAGE names there in the
#                   storage
#   --tag NAME      what the image is called (default: metp:TARGET)
#   --run           then train the quickstart's job inside it, as its user, and say how long all of it took
#   --storage DIR   where images are kept (default: build-image; removing it removes them)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=cpu tag='' run=false storage=build-image
while [[ $# -gt 0 ]]; do
  case $1 in
    --target) target=${2:?"--target: expected cpu or cuda"} && shift ;;
    --tag) tag=${2:?"--tag: expected a name"} && shift ;;
    --storage) storage=${2:?"--storage: expected a folder"} && shift ;;
    --run) run=true ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    *) echo "build.sh: found '$1', expected --target, --tag, --run or --storage" >&2 && exit 2 ;;
  esac
  shift
done
tag=${tag:-metp:$target}
deploy/packages.sh image
mkdir -p "$storage"
storage=$(realpath "$storage")

buildah() { command buildah --root "$storage/images" --runroot "$storage/run" "$@"; }

# What the name stands for elsewhere: Debian 12's smallest system, without documentation, with its security updates.
base=docker.io/library/debian:bookworm-slim
make_base() {
  local root=$storage/base container
  rm -rf "$root"
  debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian >"$storage/debootstrap.log" ||
    { tail -n 20 "$storage/debootstrap.log" >&2 && return 1; }
  cat >"$root/etc/apt/sources.list" <<'EOF'
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
EOF
  printf '%s\n' path-exclude=/usr/share/{doc,info,locale,man}/\* >"$root/etc/dpkg/dpkg.cfg.d/slim"
  rm -rf "$root"/usr/share/{doc,info,locale,man}/* "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  container=$(buildah from scratch)
  buildah add -q "$container" "$root" / >/dev/null
  buildah commit -q "$container" "$base" >/dev/null
  buildah rm "$container" >/dev/null
  rm -rf "$root"
}

if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
  echo "Making $base ..." >&2
  make_base
fi

started=$SECONDS
version=$(sed -n 's/^project(metp VERSION \([^ ]*\).*/\1/p' CMakeLists.txt)
revision=$(git -c safe.directory="$PWD" rev-parse HEAD 2>/dev/null) || revision=unknown
buildah bud --isolation chroot --pull-never --layers --target "$target" --tag "$tag" \
  --build-arg VERSION="$version" --build-arg REVISION="$revision" .
built=$((SECONDS - started))

job=
if $run; then
  container=$(buildah from --pull-never "localhost/$tag")
  trap 'buildah rm "$container" >/dev/null' EXIT
  started=$SECONDS
  buildah run --isolation chroot -v "$PWD/deploy/image/job.sh:/tmp/job.sh:ro" "$container" -- bash /tmp/job.sh
  job=", the job $((SECONDS - started)) s"
fi
printf '%s: %s, %s; built in %s s%s\n' "$tag" "$(date -u '+%-d %B %Y')" \
  "$(buildah images --format '{{.Size}}' "localhost/$tag")" "$built" "$job"
