#!/usr/bin/env bash
# No C++ file is longer than 500 lines: its nouns want to be separated.
. "$(dirname "$0")/lib.sh"
list_files '*.cc' '*.h' '*.cu' | xargs -r -d '\n' awk '
  FNR == 501 { printf "%s: more than 500 lines\n", FILENAME; bad = 1 }
  END { exit bad }'
