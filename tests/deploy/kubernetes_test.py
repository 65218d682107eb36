"""The Kubernetes manifests: rendered, held against Kubernetes' schemas, against what is promised, and against the programs.

    kubernetes_test.py BINARY_DIR CASE      CASE: the name of a test without test_
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
OVERLAYS = ["cpu", "gpu", "rdma"]
ON_GPUS = ["gpu", "rdma"]
SCHEMAS = ["1.27", "1.37"]  # the oldest and the newest release that the README names
OPERATOR_KINDS = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}  # of the Prometheus Operator, in no schema
STOPPING_MS = 20000  # beside the checkpoint: stop_grace, leave_grace and gpu_memory_wait of worker/daemon/config.h
bin_dir = None


def kustomize(folder):
    """What kubectl makes of a folder, as a list of objects."""
    kubectl = Path(sys.executable).parent / "kubectl"
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"kubectl kustomize {folder}: exit code {done.returncode}\n{done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


def render(overlay):
    return kustomize(KUBERNETES / "overlays" / overlay)


def render_own(kustomization, **files):
    """As one more overlay, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "deploy"
        shutil.copytree(ROOT / "deploy", copy)
        site = copy / "kubernetes/overlays/site"
        site.mkdir()
        (site / "kustomization.yaml").write_text(kustomization)
        for name, text in files.items():
            (copy / name).write_text(text)
        return kustomize(site)


def monitored(overlay="cpu"):
    return render_own(f"""
        apiVersion: kustomize.config.k8s.io/v1beta1
        kind: Kustomization
        namespace: metp
        resources: [../{overlay}]
        components: [../../components/monitoring]
        """)


def find(objects, kind, name):
    """The one of this kind and name; generated ones end in a sum of their content."""
    found = [o for o in objects if o["kind"] == kind and re.fullmatch(name + "(-[a-z0-9]{10})?", o["metadata"]["name"])]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def coordinator(objects):
    return find(objects, "Deployment", "metp-coordinator")


def workers(objects):
    return find(objects, "StatefulSet", "metp-worker")


def pod(workload):
    return workload["spec"]["template"]["spec"]


def container(workload):
    containers = pod(workload)["containers"]
    assert len(containers) == 1 and "initContainers" not in pod(workload)
    return containers[0]


def mounts(workload):
    """Path to volume."""
    volumes = {v["name"]: v for v in pod(workload)["volumes"]}
    return {m["mountPath"]: (volumes[m["name"]], m.get("readOnly", False)) for m in container(workload)["volumeMounts"]}


def environment(objects, workload):
    """Name to value; what only a cluster knows is a dictionary."""
    values = {}
    for source in container(workload).get("envFrom", []):
        values.update(find(objects, "ConfigMap", re.sub("-[a-z0-9]{10}$", "", source["configMapRef"]["name"]))["data"])
    for variable in container(workload).get("env", []):
        values[variable["name"]] = variable.get("value", variable.get("valueFrom"))
    return values


def options(objects, workload, **known):
    """--name to value, with variables put in as the kubelet does."""
    values = {**environment(objects, workload), **known}
    result = {}
    for argument in container(workload)["args"]:
        name, _, value = argument.partition("=")
        assert name not in result, name
        result[name] = re.sub(r"\$\((\w+)\)", lambda match: str(values[match[1]]), value)
    return result


def port_of(address):
    return int(address.rpartition(":")[2])


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


class Program:
    """One that runs until the end of the `with`."""

    def __init__(self, folder, name, arguments):
        self.log = Path(folder) / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [bin_dir / name, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def await_text(self, get, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if text := get():
                return text
            time.sleep(0.02)
        raise AssertionError(f"not ready: {self.log.read_text()}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Kubernetes(unittest.TestCase):
    maxDiff = None

    def each(self, overlays=None):
        for overlay in overlays or OVERLAYS:
            print(f"overlay {overlay}")
            yield render(overlay)

    # --- rendering ---

    def test_EveryOverlayIsValidByTheSchemas(self):
        for overlay in OVERLAYS:
            for item in render(overlay):
                for version in SCHEMAS:
                    with self.subTest(overlay=overlay, item=item["metadata"]["name"], kind=item["kind"], version=version):
                        kubernetes_validate.validate(item, version, strict=True)
                self.assertTrue(item["kind"] == "Namespace" or item["metadata"].get("namespace") == "metp", item)

    def test_TheReadmesOwnOverlayIsValid(self):
        text = (KUBERNETES / "README.md").read_text()
        block = re.search(r"<!-- site: begin -->\s*```yaml\n(.*?)```\s*<!-- site: end -->", text, re.S)[1]
        objects = render_own(re.sub("^   ", "", block, flags=re.M))
        for item in objects:
            if item["kind"] not in OPERATOR_KINDS:
                kubernetes_validate.validate(item, SCHEMAS[0], strict=True)
        self.assertEqual(container(workers(objects))["image"], "registry.example.com/metp:cuda")
        self.assertEqual(container(coordinator(objects))["image"], "registry.example.com/metp:cuda")
        self.assertEqual(workers(objects)["spec"]["replicas"], 16)
        claim = find(objects, "PersistentVolumeClaim", "metp-checkpoints")["spec"]
        self.assertEqual((claim["storageClassName"], claim["resources"]["requests"]["storage"]), ("shared", "20Ti"))
        self.assertEqual(environment(objects, workers(objects))["METP_CHECKPOINT_GRACE_MS"], "300000")
        find(objects, "PodMonitor", "metp-worker")

    def test_TheRdmaResourceCanBeNamedOtherwise(self):
        objects = render_own("""
            apiVersion: kustomize.config.k8s.io/v1beta1
            kind: Kustomization
            resources: [../rdma]
            patches:
              - target: {kind: StatefulSet, name: metp-worker}
                patch: |-
                  - {op: remove, path: /spec/template/spec/containers/0/resources/limits/rdma~1ib}
                  - {op: add, path: /spec/template/spec/containers/0/resources/limits/rdma~1hca, value: "1"}
            """)
        limits = container(workers(objects))["resources"]["limits"]
        self.assertEqual([key for key in limits if key.startswith("rdma")], ["rdma/hca"])

    # --- the two workloads ---

    def test_OneCoordinatorKeepsItsState(self):
        for objects in self.each():
            deployment = coordinator(objects)
            self.assertEqual(deployment["spec"]["replicas"], 1)
            self.assertEqual(deployment["spec"]["strategy"], {"type": "Recreate"})
            state = options(objects, deployment)["--state"]
            volume, read_only = mounts(deployment)[str(Path(state).parent)]
            claim = find(objects, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
            self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteOnce"])
            self.assertFalse(read_only)

    def test_WorkersStartTogetherUnderTheirOwnNames(self):
        for objects in self.each():
            spec = workers(objects)["spec"]
            self.assertGreater(spec["replicas"], 1)
            self.assertEqual(spec["podManagementPolicy"], "Parallel")
            self.assertEqual(spec["updateStrategy"], {"type": "OnDelete"})
            service = find(objects, "Service", spec["serviceName"])["spec"]
            self.assertEqual(service["clusterIP"], "None")
            self.assertTrue(matches(service["selector"], spec["template"]["metadata"]["labels"]))
            field = {name: value.get("fieldRef", {}).get("fieldPath")
                     for name, value in environment(objects, workers(objects)).items() if isinstance(value, dict)}
            known = {name: f"<{path}>" for name, path in field.items()}
            got = options(objects, workers(objects), **known)
            self.assertEqual((got["--name"], got["--address"], got["--node"]),
                             ("<metadata.name>", "<status.podIP>", "<spec.nodeName>"))

    def test_ThreadsAreThePodsShareOfTheCores(self):
        for objects in self.each():
            worker = container(workers(objects))
            cores = environment(objects, workers(objects))["CORES"]["resourceFieldRef"]
            self.assertEqual(cores, {"containerName": worker["name"], "resource": "limits.cpu", "divisor": "1"})
            self.assertEqual(options(objects, workers(objects), CORES="<cores>")["--threads"], "<cores>")
            self.assertIn("cpu", worker["resources"]["limits"])

    def test_WorkersDialTheCoordinator(self):
        for objects in self.each():
            host, _, port = options(objects, workers(objects))["--coordinator"].rpartition(":")
            service = find(objects, "Service", host)["spec"]
            self.assertTrue(matches(service["selector"], coordinator(objects)["spec"]["template"]["metadata"]["labels"]))
            [target] = [p["targetPort"] for p in service["ports"] if p["port"] == int(port)]
            [listens] = [p["containerPort"] for p in container(coordinator(objects))["ports"] if p["name"] == target]
            self.assertEqual(listens, port_of(options(objects, coordinator(objects))["--listen"]))

    def test_AWorkerThatGoesHasTimeForACheckpoint(self):
        for objects in self.each():
            grace = int(options(objects, workers(objects))["--checkpoint-grace-ms"])
            self.assertGreaterEqual(grace, 120000)
            self.assertGreaterEqual(pod(workers(objects))["terminationGracePeriodSeconds"] * 1000, grace + STOPPING_MS)

    def test_AllWorkersShareTheCheckpoints(self):
        for objects in self.each():
            volume, read_only = mounts(workers(objects))["/checkpoints"]
            claim = find(objects, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
            self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
            self.assertFalse(read_only)

    def test_DrainsTakeOneWorkerAtATime(self):
        for objects in self.each():
            [budget] = [o["spec"] for o in objects if o["kind"] == "PodDisruptionBudget"]
            self.assertEqual(budget["maxUnavailable"], 1)
            self.assertTrue(matches(budget["selector"]["matchLabels"],
                                    workers(objects)["spec"]["template"]["metadata"]["labels"]))

    # --- devices ---

    def test_AWorkerHasOneGpuAndSharedMemory(self):
        for objects in self.each(ON_GPUS):
            worker = container(workers(objects))
            self.assertEqual(worker["resources"]["limits"]["nvidia.com/gpu"], "1")
            self.assertEqual(options(objects, workers(objects))["--gpu"], "0")
            self.assertTrue(worker["image"].endswith(":cuda"))
        for objects in self.each():
            volume, _ = mounts(workers(objects))["/dev/shm"]
            self.assertEqual(volume["emptyDir"],
                             {"medium": "Memory", "sizeLimit": "64Mi" if "nvidia.com/gpu" not in json.dumps(objects) else "4Gi"})
        for objects in self.each(["cpu"]):
            self.assertNotIn("nvidia.com/gpu", json.dumps(objects))
            self.assertTrue(container(workers(objects))["image"].endswith(":cpu"))

    def test_RdmaAloneHasItsDevicesAndLocksMemory(self):
        for objects in self.each(["rdma"]):
            self.assertEqual(container(workers(objects))["resources"]["limits"]["rdma/ib"], "1")
            self.assertEqual(container(workers(objects))["securityContext"]["capabilities"]["add"], ["IPC_LOCK"])
            self.assertLessEqual({"NCCL_IB_HCA", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"},
                                 environment(objects, workers(objects)).keys())
            self.assertNotIn("add", container(coordinator(objects))["securityContext"]["capabilities"])
        for objects in self.each(["cpu", "gpu"]):
            self.assertNotRegex(json.dumps(objects), "rdma/|IPC_LOCK|NCCL_IB")

    # --- security ---

    def test_PodsHaveNoRights(self):
        for objects in self.each():
            self.assertFalse({o["kind"] for o in objects} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
            for workload in (coordinator(objects), workers(objects)):
                spec = pod(workload)
                account = find(objects, "ServiceAccount", spec["serviceAccountName"])
                self.assertIs(account["automountServiceAccountToken"], False)
                self.assertIs(spec["automountServiceAccountToken"], False)
                self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                security = container(workload)["securityContext"]
                self.assertIs(security["allowPrivilegeEscalation"], False)
                self.assertIs(security["readOnlyRootFilesystem"], True)
                self.assertEqual(security["capabilities"]["drop"], ["ALL"])
                self.assertNotIn("privileged", security)
                self.assertFalse({"hostNetwork", "hostIPC", "hostPID"} & spec.keys())
                for volume in spec["volumes"]:
                    self.assertNotIn("hostPath", volume)
        user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.M)
        self.assertEqual((pod(workers(objects))["securityContext"]["runAsUser"],
                          pod(workers(objects))["securityContext"]["runAsGroup"]), (int(user[1]), int(user[2])))

    def test_TheNamespaceEnforcesIt(self):
        for overlay, level in {"cpu": "restricted", "gpu": "restricted", "rdma": "privileged"}.items():
            labels = find(render(overlay), "Namespace", "metp")["metadata"]["labels"]
            self.assertEqual(labels["pod-security.kubernetes.io/enforce"], level)
            self.assertEqual(labels["pod-security.kubernetes.io/warn"], "restricted")

    def test_WhatIsWrittenIsOnVolumes(self):
        for objects in self.each():
            written = {  # by program: where its options and defaults make it write
                "coordinator": {"/tmp", str(Path(options(objects, coordinator(objects))["--state"]).parent)},
                "worker": {"/tmp", options(objects, workers(objects))["--profile-cache"], "/checkpoints"},
            }
            for workload in (coordinator(objects), workers(objects)):
                writable = {path for path, (_, read_only) in mounts(workload).items() if not read_only}
                self.assertLessEqual(written[container(workload)["name"]], writable)
            self.assertIn(container(workers(objects))["workingDir"], mounts(workers(objects)))
            cuda_cache = environment(objects, workers(objects)).get("CUDA_CACHE_PATH", "/var/cache/metp/")
            self.assertTrue(cuda_cache.startswith("/var/cache/metp/"))

    def test_ConfigurationAndSecretsAreMounted(self):
        for objects in self.each():
            for workload in (coordinator(objects), workers(objects)):
                files, read_only = mounts(workload)["/etc/metp"]
                find(objects, "ConfigMap", re.sub("-[a-z0-9]{10}$", "", files["configMap"]["name"]))
                self.assertTrue(read_only)
                secret, read_only = mounts(workload)["/etc/metp-secrets"]
                self.assertIs(secret["secret"]["optional"], True)
                self.assertEqual(secret["secret"]["defaultMode"], 0o440)
                self.assertTrue(read_only)
            self.assertFalse([o for o in objects if o["kind"] == "Secret"])

    def test_OnlyWhoMustMayTalk(self):
        for objects in self.each():
            policies = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy"]
            labels = {w["metadata"]["name"]: w["spec"]["template"]["metadata"]["labels"]
                      for w in (coordinator(objects), workers(objects))}

            def rules(name, way):
                chosen = [p for p in policies if matches(p["podSelector"]["matchLabels"], labels[name])]
                self.assertTrue([p for p in chosen if way.capitalize() in p["policyTypes"]])
                return [rule for p in chosen for rule in p.get(way, [])]

            def reached(rule, way):  # names of ours, "names" of others, ports
                peers = set()
                for peer in rule["from" if way == "ingress" else "to"]:
                    selector = peer.get("podSelector", {}).get("matchLabels")
                    ours = {n for n, own in labels.items() if selector and "namespaceSelector" not in peer
                            and matches(selector, own)}
                    peers |= ours or {json.dumps(peer, sort_keys=True)}
                return frozenset(peers), frozenset(str(p["port"]) for p in rule.get("ports", [])) or "all"

            client = '{"podSelector": {"matchLabels": {"metp-client": "true"}}}'
            anywhere = '{"namespaceSelector": {}}'
            one = frozenset
            self.assertEqual({reached(r, "ingress") for r in rules("metp-coordinator", "ingress")},
                             {(one({"metp-worker"}), one({"7070"})), (one({client}), one({"7070", "7071"}))})
            self.assertEqual(rules("metp-coordinator", "egress"), [])
            self.assertEqual({reached(r, "ingress") for r in rules("metp-worker", "ingress")},
                             {(one({"metp-worker"}), "all")})
            self.assertEqual({reached(r, "egress") for r in rules("metp-worker", "egress")},
                             {(one({"metp-worker"}), "all"), (one({"metp-coordinator"}), one({"7070"})),
                              (one({anywhere}), one({"53"}))})

    # --- the programs ---

    def test_ProgramsHaveTheseOptions(self):
        for objects in self.each():
            for workload in (coordinator(objects), workers(objects)):
                [program] = container(workload)["command"]
                usage = subprocess.run([bin_dir / program, "--help"], capture_output=True, text=True, timeout=20).stdout
                have = set(re.findall(r"--[a-z-]+", usage))
                for argument in container(workload)["args"]:
                    self.assertIn(argument.partition("=")[0], have, program)
                listened = {port_of(value) for name, value in options(objects, workload).items()
                            if name in ("--listen", "--http")}
                self.assertEqual({p["containerPort"] for p in container(workload)["ports"]}, listened)
                dockerfile = (ROOT / "Dockerfile").read_text()
                self.assertIn(f"build/bin/{program}", dockerfile)

    def test_ProgramsAnswerTheProbes(self):
        if shutil.which("curl") is None:
            self.skipTest("curl missing")
        objects = render("cpu")
        with tempfile.TemporaryDirectory() as folder:
            ready = Path(folder) / "ready"
            own = {**options(objects, coordinator(objects)), "--listen": "127.0.0.1:0", "--http": "127.0.0.1:0",
                   "--state": f"{folder}/state", "--ready-file": str(ready)}
            with Program(folder, "metp-coordinator", [f"{k}={v}" for k, v in own.items()]) as program:
                program.await_text(ready.exists)
                address = json.loads(ready.read_text())["listen"]
                answer = self.health(address, self.probes(coordinator(objects), "grpc"))
                self.assertEqual(answer, b"\x00\x00\x00\x00\x02\x08\x01")
                own = {**options(objects, workers(objects), POD_NAME="metp-worker-0", NODE_NAME="node", POD_IP="127.0.0.1",
                                 CORES="1", METP_PROFILE="none", METP_COORDINATOR=address),
                       "--http": "127.0.0.1:0", "--profile-cache": f"{folder}/cache"}
                with Program(folder, "metp-worker", [f"{k}={v}" for k, v in own.items()]) as worker:
                    address = worker.await_text(lambda: re.search("metrics on http://([0-9.:]+)", worker.log.read_text()))[1]
                    [path] = {probe["path"] for probe in self.probes(workers(objects), "httpGet")}
                    done = subprocess.run(["curl", "-sf", f"http://{address}{path}"], capture_output=True, timeout=20)
                    self.assertEqual((done.returncode, done.stdout), (0, b"ok\n"))

    def probes(self, workload, kind):
        """All three ask for the same, on a port that the container has."""
        got = [container(workload)[name][kind] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        for probe in got:
            self.assertIn(probe["port"], [v for p in container(workload)["ports"] for v in p.values()])
            self.assertEqual(probe, got[0])
        return got

    def health(self, address, probes):
        """What gRPC's health service answers the kubelet, as bytes: 08 01 is SERVING."""
        service = probes[0].get("service", "").encode()
        message = b"" if not service else b"\x0a" + bytes([len(service)]) + service
        done = subprocess.run(
            ["curl", "-s", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers",
             "--data-binary", "@-", f"http://{address}/grpc.health.v1.Health/Check"],
            input=b"\x00" + len(message).to_bytes(4, "big") + message, capture_output=True, timeout=20)
        return done.stdout

    def test_TheCoordinatorIsProbedWhereItListens(self):
        for objects in self.each():
            port = port_of(options(objects, coordinator(objects))["--listen"])
            self.assertEqual({probe["port"] for probe in self.probes(coordinator(objects), "grpc")}, {port})
            startup = container(workers(objects))["startupProbe"]
            self.assertGreater(startup["periodSeconds"] * startup["failureThreshold"], 120)  # profile_timeout

    # --- monitoring ---

    def test_PrometheusFindsEveryProgram(self):
        objects = monitored()
        release = yaml.safe_load((KUBERNETES / "components/monitoring/settings.yaml").read_text())["data"]
        for item in objects:
            if item["kind"] in OPERATOR_KINDS:
                self.assertEqual(item["metadata"]["labels"]["release"], release["release"])
                self.assertEqual(item["metadata"]["namespace"], "metp")
        service = find(objects, "Service", "metp-coordinator")
        monitor = find(objects, "ServiceMonitor", "metp-coordinator")["spec"]
        self.assertTrue(matches(monitor["selector"]["matchLabels"], service["metadata"]["labels"]))
        [endpoint] = monitor["endpoints"]
        self.assertIn(endpoint["port"], [p["name"] for p in service["spec"]["ports"]])
        template = workers(objects)["spec"]["template"]
        monitor = find(objects, "PodMonitor", "metp-worker")["spec"]
        self.assertTrue(matches(monitor["selector"]["matchLabels"], template["metadata"]["labels"]))
        [pod_endpoint] = monitor["podMetricsEndpoints"]
        self.assertIn(pod_endpoint["port"], [p["name"] for p in container(workers(objects))["ports"]])
        for scraped in (endpoint, pod_endpoint):
            self.assertEqual((scraped["path"], scraped["honorLabels"]), ("/metrics", True))
        [rule] = find(objects, "NetworkPolicy", "metp-monitoring")["spec"]["ingress"]
        self.assertEqual(rule["from"][0]["namespaceSelector"]["matchLabels"],
                         {"kubernetes.io/metadata.name": release["namespace"]})
        self.assertEqual({p["port"] for p in rule["ports"]},
                         {port_of(options(objects, w)["--http"]) for w in (coordinator(objects), workers(objects))})
        settings = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"].startswith("metp-monitoring")]
        self.assertEqual(settings, [])

    def test_RulesAndDashboardsAreTheOnesOfDeploy(self):
        subprocess.run([KUBERNETES / "components/monitoring/make.sh", "--check"], check=True, timeout=20)
        objects = monitored()
        rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())
        self.assertEqual(find(objects, "PrometheusRule", "metp")["spec"], rules)
        dashboards = find(objects, "ConfigMap", "metp-dashboards")
        self.assertEqual(dashboards["metadata"]["labels"]["grafana_dashboard"], "1")
        self.assertEqual({name: json.loads(text) for name, text in dashboards["data"].items()},
                         {p.name: json.loads(p.read_text()) for p in (ROOT / "deploy/grafana").glob("*.json")})


def main():
    global bin_dir
    bin_dir = Path(sys.argv[1])
    suite = unittest.TestSuite([Kubernetes(f"test_{sys.argv[2]}")])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.skipped:
        print(result.skipped[0][1])
        sys.exit(77)


if __name__ == "__main__":
    main()
