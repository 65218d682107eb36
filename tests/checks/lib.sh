# Shared by the checks of this folder (sourced): the files that are ours, and the exit code for "not run".
# A check exits 0 (passed), 77 (skipped, the reason on its last line) or anything else (failed).
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Paths of our files, tracked or new but not ignored, that match any of the glob patterns: list_files '*.cc' '*.h'
list_files() {
  if [[ -e .git ]] && command -v git >/dev/null; then
    git -c safe.directory="$PWD" ls-files --cached --others --exclude-standard -- "$@" |
      while IFS= read -r file; do [[ ! -f $file ]] || printf '%s\n' "$file"; done
  else
    local pattern names=()
    for pattern in "$@"; do names+=(-o -path "./$pattern"); done
    find . \( -name 'build*' -o -name .git \) -prune -o -type f \( "${names[@]:1}" \) -printf '%P\n'
  fi | sort -u
}

# Skips the check when a tool is not installed.
need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || {
      echo "$tool missing"
      exit 77
    }
  done
}
