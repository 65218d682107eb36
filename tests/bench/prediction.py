#!/usr/bin/env python3
"""How well the simulator predicts this machine: step time and exposed communication, predicted on the profile `local`
(measured just before each run) against measured.

    tests/bench/prediction.py [--binary build/bin/metp-rank] [--rounds 3]

Model: tests/bench/llama-6x512-8k.yaml at 2,048, 4,096 and 8,192 tokens, p = 2 and 4 ranks of one thread. Prediction and
measurement take turns; the medians over rounds are compared.
"""
import argparse
import json
import statistics
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(binary, *arguments):
    command = [binary, "run", "-f", str(HERE / "llama-6x512-8k.yaml"), "-o", "json", "--threads", "1", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def step(report):
    """Seconds of the last step (the first also touches fresh memory), and of a step the most that any rank's compute stood waiting for messages on their way."""
    steps = len(report["step_seconds"])
    exposed = max(sum(p["exposed_seconds"] for p in rank["passes"].values()) for rank in report["ranks"]) / steps
    return report["step_seconds"][-1], exposed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(HERE.parent.parent / "build/bin/metp-rank"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("   p  tokens   measured  predicted  predicted/measured   exposed, of the step: measured  predicted")
    for p in (2, 4):
        for tokens in (2048, 4096, 8192):
            shape = ["--ranks", str(p), "--set", f"data.sequence_length={tokens}", "--set", "train.steps=2"]
            measured, predicted = [], []
            for _ in range(options.rounds):
                measured.append(step(run(options.binary, *shape)))
                predicted.append(step(run(options.binary, *shape, "--backend", "sim", "--profile", "local")))
            seconds, guess = (statistics.median(x[0] for x in xs) for xs in (measured, predicted))
            ratio = statistics.median(b[0] / a[0] for a, b in zip(measured, predicted))
            exposed, guessed = (statistics.median(x[1] / x[0] for x in xs) for xs in (measured, predicted))
            print(f"{p:4d} {tokens:7d} {seconds:8.2f} s {guess:8.2f} s {ratio:19.2f} {100 * exposed:29.1f} % "
                  f"{100 * guessed:9.1f} %", flush=True)


if __name__ == "__main__":
    main()
