#!/usr/bin/env bash
# clang-tidy (the checks of .clang-tidy) over the programs' own sources. Tests are compiled by clang with warnings as errors
# in the sanitizer build and are not run through it.
#   tests/checks/tidy.sh BUILD_DIR [FILE ...]     (configured, generated sources built)
. "$(dirname "$0")/lib.sh"
need clang-tidy-14
build=${1:?usage: tidy.sh BUILD_DIR [FILE ...]}
shift
files=()
if [[ $# -gt 0 ]]; then
  files=("$@")
else
  # What this machine lacks the libraries of is not built, so that nobody knows how it is to be read.
  for file in $(list_files 'proto/*.cc' 'server/*.cc' 'worker/*.cc' 'client/*.cc'); do
    if grep -qF "$PWD/$file\"" "$build/compile_commands.json"; then files+=("$file"); else echo "not built, not read: $file"; fi
  done
fi
printf '%s\n' "${files[@]}" |
  xargs -d '\n' -n 4 -P "$(nproc)" clang-tidy-14 -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
