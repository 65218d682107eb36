#!/usr/bin/env bash
# Every C++ file is as clang-format-14 would write it. To repair: tests/checks/format.sh --fix
. "$(dirname "$0")/lib.sh"
need clang-format-14
mapfile -t files < <(list_files '*.cc' '*.h' '*.cu')
if [[ ${1:-} == --fix ]]; then
  clang-format-14 -i "${files[@]}"
else
  clang-format-14 --dry-run -Werror "${files[@]}"
fi
