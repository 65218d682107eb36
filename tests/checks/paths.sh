#!/usr/bin/env bash
# No file names a path that exists on one developer's machine only.
. "$(dirname "$0")/lib.sh"
pattern='(^|[^[:alnum:]_.}-])/(root|work|Users/[[:alnum:]_.-]+|home/[[:alnum:]_.-]+)/|(/tmp)/build'
if list_files '*' | xargs -r -d '\n' grep -InE "$pattern"; then
  exit 1
fi
