#!/usr/bin/env bash
# Makes what kustomize cannot take from elsewhere: rules.yaml here out of deploy/prometheus/rules.yaml, and
# deploy/grafana/kustomization.yaml, which names the dashboards beside it. To be run when either changes.
#
#   deploy/kubernetes/components/monitoring/make.sh [--check]
#
#   --check   write nothing; fail where a file is not what would be written
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
deploy=../../..

rules() {
  cat <<'EOF'
# Made by make.sh from deploy/prometheus/rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: metp
  labels:
    release: set-by-settings
spec:
EOF
  sed '/^#/d; /./s/^/  /' "$deploy/prometheus/rules.yaml"
}

dashboards() {
  cat <<'EOF'
# Made by deploy/kubernetes/components/monitoring/make.sh: the dashboards of this folder, as Grafana's sidecar finds them.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
configMapGenerator:
  - name: metp-dashboards
    options:
      disableNameSuffixHash: true
      labels:
        grafana_dashboard: "1"
    files:
EOF
  (cd "$deploy/grafana" && printf '      - %s\n' *.json)
}

[[ -r $deploy/prometheus/rules.yaml ]] || { echo "make.sh: deploy/prometheus/rules.yaml is not there" >&2 && exit 1; }
compgen -G "$deploy/grafana/*.json" >/dev/null || { echo "make.sh: no dashboard in deploy/grafana" >&2 && exit 1; }
case ${1:-} in
  --check)
    diff -u rules.yaml <(rules)
    diff -u "$deploy/grafana/kustomization.yaml" <(dashboards)
    ;;
  '')
    rules >rules.yaml
    dashboards >"$deploy/grafana/kustomization.yaml"
    ;;
  *) echo "make.sh: found '$1', expected --check or nothing" >&2 && exit 2 ;;
esac
