#!/usr/bin/env python3
"""The status pages in a browser: a cluster on this machine trains a small job; headless Chromium draws its pages, light and
dark. Checks the document that it made of them, and that there is something to be seen. Without JavaScript: the pages forbid
every script themselves, and have none.

    tests/server/http/browser_test.py BIN_DIR [--keep DIR]     DIR: where the screenshots stay

Exits with 77, having said why, where there is no Chromium.
"""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from html.parser import HTMLParser
from pathlib import Path

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
JOB = """name: small
model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128}
data: {source: [text.txt], sequence_length: 256}
train: {steps: 60, learning_rate: 0.003, warmup_steps: 2}
parallel: {degree: 4}
"""


def wait_for(what, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.05)
    sys.exit(f"not within {seconds} s: {what.__name__}")


class Cluster:
    """A coordinator and four workers; ended in the other order."""

    def __init__(self, binaries, folder):
        self.binaries, self.folder, self.running = binaries, folder, []
        ready = folder / "ready"
        self.start("coordinator", "metp-coordinator", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", ready)
        wait_for(ready.exists)
        addresses = json.loads(ready.read_text())
        self.listen, self.url = addresses["listen"], "http://" + addresses["http"]

    def start(self, name, program, *arguments):
        with open(self.folder / f"{name}.log", "w") as log:
            self.running.append(subprocess.Popen([self.binaries / program, *arguments], stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=subprocess.STDOUT))

    def start_workers(self):
        for i in range(4):
            self.start(f"worker-{i}", "metp-worker", "--coordinator", self.listen, "--name", f"worker-{i}", "--http",
                       "127.0.0.1:0", "--address", "127.0.0.1", "--workers-here", "4", "--profile-cache",
                       self.folder / "profiles")
            log = self.folder / f"worker-{i}.log"
            wait_for(lambda: " ready: " in log.read_text())

    def get(self, path, accept="*/*"):
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers.get_content_type(), answer.read().decode()

    def policy(self, path):
        request = urllib.request.Request(self.url + path, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers["Content-Security-Policy"]

    def end(self):
        for process in reversed(self.running):
            process.terminate()
        for process in reversed(self.running):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Browser:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, url, *options):
        with tempfile.TemporaryDirectory(dir=self.folder) as profile:
            return subprocess.run([self.program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                                   "--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                                   "--virtual-time-budget=2000", *options, url],
                                  capture_output=True, text=True, timeout=90, check=True).stdout

    def document(self, url, *options):
        return self.run(url, "--dump-dom", *options)

    def picture(self, url, path, dark):
        self.run(url, f"--screenshot={path}", "--window-size=1280,2000",
                 "--blink-settings=preferredColorScheme=" + ("0" if dark else "1"))
        return pixels(path.read_bytes())


def pixels(png):
    """Rows of (red, green, blue) of a PNG of 8 bits without interlacing."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, _, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and color in (2, 6) and interlace == 0, (depth, color, interlace)
            channels = 3 if color == 2 else 4
        if kind == b"IDAT":
            data += body
        at += 12 + size
    raw, stride, rows, before = zlib.decompress(data), width * channels, [], bytes(width * channels)
    for start in range(0, len(raw), stride + 1):
        way, line = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for i in range(stride):
            left = line[i - channels] if i >= channels else 0
            up, corner = before[i], before[i - channels] if i >= channels else 0
            if way == 1:
                line[i] = (line[i] + left) & 255
            elif way == 2:
                line[i] = (line[i] + up) & 255
            elif way == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif way == 4:
                guess = left + up - corner
                line[i] = (line[i] + min((left, up, corner), key=lambda value: abs(guess - value))) & 255
        before = bytes(line)
        rows.append([tuple(before[i:i + 3]) for i in range(0, stride, channels)])
    return rows


class Outline(HTMLParser):
    """What there is in a document: captions of tables, names of SVGs, headings without a scope."""

    def __init__(self, text):
        super().__init__()
        self.captions, self.charts, self.headings, self.unscoped, self.inside, self.tags = [], [], [], 0, None, set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.inside = tag
        if tag == "th" and "scope" not in dict(attributes):
            self.unscoped += 1

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        lists = {"caption": self.captions, "title": self.charts, "h2": self.headings}
        if self.inside in lists:
            lists[self.inside].append(data)


def check(what, holds):
    print(("ok    " if holds else "WRONG ") + what, flush=True)
    return bool(holds)


def check_pictures(browser, name, url, pictures):
    good = True
    for dark in (False, True):
        path = pictures / f"{name}-{'dark' if dark else 'light'}.png"
        rows = browser.picture(url, path, dark)
        colors = {pixel for row in rows[::3] for pixel in row[::3]}
        ground = rows[len(rows) - 3][3]
        good &= check(f"{path.name}: {len(colors)} colours", len(colors) > 30)
        good &= check(f"{path.name}: the ground is {ground}", (sum(ground) < 150) == dark)
    return good


def main():
    binaries = Path(sys.argv[1]).resolve()
    program = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if program is None:
        print(f"no Chromium ({BROWSERS[0]} is missing: deploy/packages.sh test)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pictures = Path(sys.argv[3]) if "--keep" in sys.argv else folder
        pictures.mkdir(parents=True, exist_ok=True)
        browser = Browser(program, folder)
        (folder / "text.txt").write_text("".join(f"line {i} of a text that a small model can learn\n" for i in range(400)))
        (folder / "job.yaml").write_text(JOB)
        cluster = Cluster(binaries, folder)
        try:
            empty = browser.document(cluster.url + "/")
            good = check("an empty cluster says what to do", "No workers yet. Start one:" in empty)
            cluster.start_workers()
            control = [binaries / "metpctl", "--coordinator", cluster.listen]
            subprocess.run([*control, "submit", "-f", folder / "job.yaml", "--watch"], check=True, timeout=120,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            overview = Outline(browser.document(cluster.url + "/?refresh=0"))
            good &= check(f"overview: tables {overview.captions}",
                          {"Workers", "Ended jobs", "Devices by model"} <= set(overview.captions))
            good &= check("overview: every heading of a table has its scope", overview.unscoped == 0)
            job = Outline(browser.document(cluster.url + "/jobs/small-1"))
            wanted = {"Loss over steps", "Tokens per second over steps", "Exposed seconds of a step by pass, plan and measured",
                      "Peak memory of the fullest rank by category, over steps",
                      "Hidden communication of attention forward, over steps"}
            good &= check(f"job: charts; missing {wanted - set(job.charts)}", wanted <= set(job.charts))
            tables = {"Plan against measured", "Ranks of the last attempt", "Loss over steps", "Events, latest first",
                      "Memory of the fullest rank by category"}
            good &= check(f"job: tables; missing {tables - set(job.captions)}", tables <= set(job.captions))
            good &= check("job: every heading of a table has its scope", job.unscoped == 0)
            good &= check("scripts are forbidden", "default-src 'none'" in cluster.policy("/jobs/small-1"))
            good &= check("no script, nothing from elsewhere", not {"script", "link", "img", "iframe"} & (job.tags | overview.tags))
            kind, text = cluster.get("/")
            good &= check("plain text for others", kind == "text/plain" and "small-1" in text)
            kind, targets = cluster.get("/sd/workers")
            good &= check("Prometheus finds four workers", kind == "application/json" and len(json.loads(targets)) == 4)
            good &= check_pictures(browser, "overview", cluster.url + "/?refresh=0", pictures)
            good &= check_pictures(browser, "job", cluster.url + "/jobs/small-1", pictures)
        finally:
            cluster.end()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
