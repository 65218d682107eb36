#!/usr/bin/env bash
# clang-tidy (the checks of .clang-tidy) over the programs' own sources. Tests are compiled by clang with warnings as errors
# in the sanitizer build and are not run through it.
#   tests/checks/tidy.sh BUILD_DIR [FILE ...]     (configured, generated sources built)
. "$(dirname "$0")/lib.sh"
need clang-tidy-14
build=${1:?usage: tidy.sh BUILD_DIR [FILE ...]}
shift
if [[ $# -gt 0 ]]; then
  files=("$@")
else
  mapfile -t files < <(list_files 'proto/*.cc' 'server/*.cc' 'worker/*.cc' 'client/*.cc')
fi
printf '%s\n' "${files[@]}" |
  xargs -d '\n' -n 4 -P "$(nproc)" clang-tidy-14 -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
