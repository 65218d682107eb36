#!/usr/bin/env bash
# One case of kubernetes_test.py, with the Python that environment.sh has made: run_case.sh BINARY_DIR CASE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
venv=$(realpath ../..)/.venv
for tool in kubectl kubernetes-validate; do
  [[ -x $venv/bin/$tool ]] || {
    echo "$tool missing"
    exit 77
  }
done
exec "$venv/bin/python" -B kubernetes_test.py "$@"
