"""Programs of a small cluster and a Prometheus over it, started and stopped by their process ids."""

import ctypes
import json
import math
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PR_SET_PDEATHSIG = 1
GPU_UUID = f"GPU-{os.getpid():08x}-aaaa-bbbb-cccc-000000000000"  # of this run alone: workers lock it
GPU = f"""driver 580.95.05
cuda 13000
init 0
gpu {GPU_UUID} NVIDIA H200
memory 143771 600 4
capability 9 0
mode 0
mig 0
ecc 0
error 0
"""
PROFILE = """name: made-up-cpu
precision: fp32
peak_flops_per_second: 100e9
memory_bytes: 4000000000
bytes_per_second: 10e9
gemm: {flops_per_second: 50e9}
attention_forward: {flops_per_second: 20e9}
attention_backward: {flops_per_second: 20e9}
devices_per_node: 2
link: {bytes_per_second: 2e9, latency_seconds: 5e-5}
"""
# Steps of some ten milliseconds; more of them than a test waits for.
JOB = """name: small
model: {family: llama, layers: 2, hidden: 128, heads: 4, kv_heads: 2, ffn: 256}
data: {source: [text.txt], sequence_length: 512}
train: {steps: STEPS, learning_rate: 0.003, warmup_steps: 2}
parallel: {degree: 2}
checkpoint: {directory: saved-STEPS, every_steps: 50, keep: 1, resume: none}
device: cpu
"""


def get(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def wait_for(what, condition, seconds=30, every=0.1):
    """The first true answer of condition."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)


def end_with_parent():
    """In the child: it is told to stop when this program dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class RunningCluster:
    """`folder` is a temporary one; it gets logs, the store and checkpoints."""

    def __init__(self, bin_dir, folder):
        self.bin, self.folder = Path(bin_dir), Path(folder)
        self.started = []
        self.workers = {}  # name: URL of its metrics
        (self.folder / "text.txt").write_text("".join(f"line {i} of a text to learn by heart\n" for i in range(400)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name, process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
        for name, process in reversed(self.started):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        Path(f"/tmp/metp-{os.geteuid()}/{GPU_UUID}.lock").unlink(missing_ok=True)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start(self, name, command, ready, **environment):
        """Returns what `ready`, asked for its log, says."""
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                                       start_new_session=True, preexec_fn=end_with_parent, env={**os.environ, **environment})
        self.started.append((name, process))

        def is_ready():
            if process.poll() is not None:
                raise AssertionError(f"{name} ended with {process.returncode}:\n{self.log(name)}")
            return ready(self.log(name))
        return wait_for(f"{name} is ready", is_ready)

    def start_coordinator(self):
        ready_file = self.folder / "ready"
        self.start("coordinator", [self.bin / "metp-coordinator", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                                   "--ready-file", ready_file, "--state", self.folder / "state"],
                   lambda _: ready_file.exists())
        ready = json.loads(ready_file.read_text())
        self.address, self.http = ready["listen"], ready["http"]

    def start_worker(self, name, *options, **environment):
        line = self.start(name, [self.bin / "metp-worker", "--coordinator", self.address, "--name", name, "--http", "127.0.0.1:0",
                                 "--threads", "1", "--workers-here", "2", *options],
                          lambda log: re.search(r" ready: .*(http://\S+)", log), **environment)
        self.workers[name] = line.group(1)

    def start_cpu_worker(self, name):
        (self.folder / "profile.yaml").write_text(PROFILE)
        self.start_worker(name, "--profile", self.folder / "profile.yaml")

    def start_gpu_worker(self, name):
        """On a GPU that is made up, by a library that answers like the driver's."""
        (self.folder / "gpus").write_text(GPU)
        self.start_worker(name, "--gpu", "0", "--nvml-library", self.bin / "metp-fake-nvml.so", "--profile", "none",
                          METP_FAKE_NVML=str(self.folder / "gpus"))

    def report_xid(self, number):
        """The made-up GPU has had that error; its worker hears of it as a rank starts there, which fails for want of a device."""
        (self.folder / "gpus.new").write_text(f"{GPU}xid {number}\n")
        (self.folder / "gpus.new").rename(self.folder / "gpus")  # it may be read at any time
        self.submit(1, "name=on-gpu", "device=gpu", "parallel.degree=1", "max_restarts=0")

    def ctl(self, *arguments):
        done = subprocess.run([self.bin / "metpctl", "--coordinator", self.address, *arguments], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, preexec_fn=end_with_parent)
        if done.returncode != 0:
            raise AssertionError(f"metpctl {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, steps, *settings):
        """Returns the job's id. `settings`: "KEY=VALUE" of the job file."""
        job = self.folder / f"job-{steps}.yaml"
        job.write_text(JOB.replace("STEPS", str(steps)))
        return self.ctl("submit", "-f", str(job), *(part for setting in settings for part in ("--set", setting))).split()[-1]

    def coordinator_metrics(self):
        return get(f"http://{self.http}/metrics")

    def worker_metrics(self):
        return {name: get(url) for name, url in self.workers.items()}

    def start_prometheus(self):
        """deploy/prometheus/run.sh, every second."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            listen = "127.0.0.1:%d" % free.getsockname()[1]
        self.start("prometheus", [ROOT / "deploy/prometheus/run.sh", "--coordinator", self.http, "--listen", listen,
                                  "--interval", "1"],
                   lambda log: "Server is ready to receive web requests" in log, TMPDIR=str(self.folder))
        self.prometheus = f"http://{listen}"

    def ask(self, path, **parameters):
        """Prometheus' API: the data of its answer."""
        answer = json.loads(get(f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        if answer["status"] != "success":
            raise AssertionError(f"{path} {parameters}: {answer.get('error')}")
        return answer["data"]

    def query(self, expression):
        """Finite samples of an instant query, as (labels, value)."""
        samples = [(s["metric"], float(s["value"][1])) for s in self.ask("query", query=expression)["result"]]
        return [(labels, value) for labels, value in samples if math.isfinite(value)]
