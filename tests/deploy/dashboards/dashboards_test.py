"""Metrics, dashboards, rules and alerts: held against each other, and against a real job that a real Prometheus scrapes.

    dashboards_test.py BINARY_DIR CASE      CASE: the name of a test without test_
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import documents
from running_cluster import ROOT, RunningCluster, wait_for

OF_TARGETS = {"instance", "worker", "node"}  # labels that the scrape adds
GRAFANA_UNITS = {"short", "s", "bytes", "Bps", "percentunit", "sci"}
SECONDS = 60  # for all of what a job is asked
bin_dir = None


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise unittest.SkipTest(f"{tool} missing: deploy/packages.sh test")


def promtool(*arguments, **more):
    need("promtool")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, **more)


def filled_in(expr, job):
    """As Grafana does it, with all ranks and passes and a window that fits a test."""
    for name, value in {"job": job, "rank": ".+", "pass": ".+", "window": "10s"}.items():
        expr = expr.replace(f"${name}", value)
    return expr


class DashboardsTest(unittest.TestCase):
    maxDiff = None

    def test_EveryFileIsADashboard(self):
        boards = documents.dashboards()
        self.assertEqual({board["title"] for board in boards.values()},
                         {"METP / Cluster", "METP / Job", "METP / Overlap and memory"})
        self.assertEqual(len({board["uid"] for board in boards.values()}), len(boards))
        for file, board in boards.items():
            variables = documents.variables(board)
            self.assertEqual(variables["datasource"]["type"], "datasource", file)
            ids = [panel["id"] for panel in documents.panels(board)]
            self.assertEqual(len(ids), len(set(ids)), file)
            taken = set()
            for panel in documents.panels(board):
                where = f"{file}: {panel['title']}"
                at = panel["gridPos"]
                cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertLessEqual(at["x"] + at["w"], 24, where)
                self.assertFalse(cells & taken, f"{where}: overlaps another panel")
                taken |= cells
                if panel["type"] == "row":
                    continue
                self.assertEqual(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"}, where)
                self.assertIn(panel["fieldConfig"]["defaults"]["unit"], GRAFANA_UNITS, where)
                self.assertTrue(panel["targets"], where)
                refs = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(refs), len(set(refs)), where)
                used = set(re.findall(r"\$\{?(\w+)", str([panel["targets"], panel["title"], panel.get("repeat", "")])))
                self.assertFalse(used - set(variables), f"{where}: variables that the dashboard does not have")

    def test_QueriesAndRulesNameDocumentedMetrics(self):
        known = documents.documented_metrics()
        asked = [(f"{file}: {title}", expr) for file, board in documents.dashboards().items()
                 for title, expr in documents.queries(board)]
        asked += [(f"{file}: ${name}", variable["query"]) for file, board in documents.dashboards().items()
                  for name, variable in documents.variables(board).items() if variable["type"] == "query"]
        asked += [(name, documents.expression(text)) for _, name, text in documents.rules()]
        for where, expr in asked:
            for metric, labels in documents.metrics_in(expr):
                self.assertIn(metric, known, where)
                self.assertFalse(labels - known[metric][2] - OF_TARGETS, f"{where}: labels that {metric} does not have")
        shown = {metric for _, expr in asked for metric, _ in documents.metrics_in(expr)}
        # The same on all ranks as what the coordinator says of the job.
        self.assertEqual(set(known) - shown, {"metp_loss", "metp_tokens_total"})

    def test_NamesFollowTheConventions(self):
        for name, (kind, unit, labels) in documents.documented_metrics().items():
            self.assertRegex(name, r"^metp_[a-z_]+$")
            self.assertIn(kind, ("gauge", "counter"), name)
            self.assertEqual(name.endswith("_total"), kind == "counter", name)
            base = name.removesuffix("_total")
            for of_unit, end in (("s", "_seconds"), ("bytes", "_bytes"), ("ratio", "_ratio")):
                self.assertEqual(unit == of_unit, base.endswith(end) and not base.endswith("_per_second"), name)
            if name.startswith("metp_job_") or labels & {"rank", "pass", "category"}:
                self.assertIn("job", labels, name)

    def test_RulesAreAsPrometheusWantsThem(self):
        for what, file in (("rules", documents.RULES), ("config", ROOT / "deploy/prometheus/prometheus.yaml")):
            done = promtool("check", what, str(file))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_AlertsFireAndKeepQuietAsTheyShould(self):
        done = promtool("test", "rules", str(documents.RULES_TEST))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_EveryAlertIsDocumentedAndTriedBothWays(self):
        alerts = {name: text for kind, name, text in documents.rules() if kind == "alert"}
        severities = {name: re.search(r"severity: (\w+)", text).group(1) for name, text in alerts.items()}
        self.assertEqual(severities, {name: row[1] for name, row in documents.table("alerts").items()})
        for name, text in alerts.items():
            self.assertRegex(text, r"(?s)summary: .*description: ", name)
        tried = re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:( \[\])?", documents.RULES_TEST.read_text())
        self.assertEqual({name for name, quiet in tried if quiet}, set(alerts), "cases in which it keeps quiet")
        self.assertEqual({name for name, quiet in tried if not quiet}, set(alerts), "cases in which it fires")

    def test_ARealJobAnswersEveryQuery(self):
        need("prometheus", "promtool")
        with tempfile.TemporaryDirectory() as folder, RunningCluster(bin_dir, folder) as cluster:
            cluster.start_coordinator()
            cluster.start_cpu_worker("cpu-0")
            cluster.start_cpu_worker("cpu-1")
            cluster.start_gpu_worker("gpu-0")
            cluster.start_prometheus()
            job = cluster.submit(100000)
            cluster.report_xid(79)
            self.check_queries(cluster, job)
            with self.subTest("what is exported is what is documented"):
                self.check_exported(cluster)
            with self.subTest("targets and rules"):
                self.check_prometheus(cluster)
            with self.subTest("series end with their job"):
                self.check_ends(cluster, job)

    def check_queries(self, cluster, job):
        """Waits until all are answered."""
        open_queries = {(f"{file}: {title}", filled_in(expr, job)) for file, board in documents.dashboards().items()
                        for title, expr in documents.queries(board)}
        open_queries |= {(name, name) for kind, name, _ in documents.rules() if kind == "record"}
        deadline = time.monotonic() + SECONDS
        while open_queries and time.monotonic() < deadline:
            open_queries = {(where, expr) for where, expr in open_queries if not cluster.query(expr)}
            time.sleep(0.5 if open_queries else 0)
        with self.subTest("every query is answered"):
            self.assertEqual(sorted(open_queries), [], f"no data after {SECONDS} s")
        for file, board in documents.dashboards().items():
            for name, variable in documents.variables(board).items():
                if variable["type"] != "query":
                    continue
                with self.subTest(f"{file}: ${name}"):
                    series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
                    values = {labels.get(label) for labels, _ in cluster.query(filled_in(series, job))}
                    expected = {"job": {job}, "rank": {"0", "1"}}.get(name, values - {None})
                    self.assertTrue(values)
                    self.assertEqual(values, expected)

    def check_exported(self, cluster):
        documented = documents.documented_metrics()
        pages = {"coordinator": cluster.coordinator_metrics(), **cluster.worker_metrics()}
        exported = {}
        for program, page in pages.items():
            done = promtool("check", "metrics", input=page)
            self.assertEqual(done.returncode, 0, f"{program}: {done.stdout}{done.stderr}")
            families, samples = documents.exported_metrics(page)
            for name, labels in samples:
                kind, text = families[name]
                self.assertTrue(text, f"{name}: no help")
                exported.setdefault(name, set()).add((kind, frozenset(labels)))
        self.assertEqual(sorted(set(exported) - set(documented)), [], "exported, not documented")
        self.assertEqual(sorted(set(documented) - set(exported)), [], "documented, not exported")
        self.assertEqual(exported, {name: {(kind, frozenset(labels))} for name, (kind, _, labels) in documented.items()})

    def check_prometheus(self, cluster):
        targets = cluster.ask("targets")["activeTargets"]
        seen = {(target["labels"]["job"], target["labels"].get("worker"), target["health"]) for target in targets}
        self.assertEqual(seen, {("metp-coordinator", None, "up"), *(("metp-worker", name, "up") for name in cluster.workers)})
        rules = [rule for group in cluster.ask("rules")["groups"] for rule in group["rules"]]
        self.assertEqual({rule["name"] for rule in rules}, {name for _, name, _ in documents.rules()})
        self.assertEqual([(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"], [])

        def firing():
            return {alert["labels"]["alertname"] for alert in cluster.ask("alerts")["alerts"] if alert["state"] == "firing"}
        wait_for("an alert fires", firing)
        self.assertEqual(firing(), {"MetpGpuErrors"})

    def check_ends(self, cluster, job):
        """Of a job that was cancelled and of one that succeeded."""
        cluster.ctl("cancel", job)
        self.assertNotIn(f'job="{job}"', cluster.coordinator_metrics())
        following = cluster.submit(20)
        cluster.ctl("watch", following)
        self.assertNotIn("{job=", cluster.coordinator_metrics())
        for page in cluster.worker_metrics().values():
            self.assertNotIn(f'job="{job}"', page)
        wait_for("Prometheus has no series of the job any more",
                 lambda: not cluster.query(f'{{job="{job}", __name__=~"metp_.+"}}'))


def main():
    global bin_dir
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bin_dir = sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    result = unittest.TextTestRunner(verbosity=2).run(DashboardsTest(f"test_{sys.argv[2]}"))
    for _, reason in result.skipped:
        print(reason)
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
