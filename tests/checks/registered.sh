#!/usr/bin/env bash
# Every test source is one that the build knows: a file that no CMakeLists.txt names would pass by never running.
#   tests/checks/registered.sh BUILD_DIR     (configured, with tests)
. "$(dirname "$0")/lib.sh"
commands=${1:?usage: registered.sh BUILD_DIR}/compile_commands.json
[[ -r $commands ]] || {
  echo "$commands is not there: configure with -DMETP_TESTS=ON first"
  exit 1
}
bad=0
while IFS= read -r file; do
  grep -qF "/$file\"" "$commands" || {
    echo "$file: in no CMakeLists.txt"
    bad=1
  }
done < <(list_files 'tests/*_test.cc')
exit $bad
