#!/usr/bin/env bash
# Every shell script passes shellcheck.
. "$(dirname "$0")/lib.sh"
need shellcheck
mapfile -t files < <(list_files '*.sh' '.ci/*')
shellcheck --external-sources --source-path=SCRIPTDIR "${files[@]}"
