#!/usr/bin/env python3
"""Speed and memory of whole training steps, measured on this machine.

    tests/bench/training.py [--binary build/bin/metp-rank] [--rounds 3]

Model: tests/bench/llama-6x512-8k.yaml. One rank on two threads and two ranks over Gloo on one thread each take turns, so that
what else the machine is doing falls on both; ratios are formed within a round and their median is printed, with the
smallest and largest. Memory is counted by the ledger and needs one step.
"""
import argparse
import json
import statistics
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(binary, *arguments):
    command = [binary, "run", "-f", str(HERE / "llama-6x512-8k.yaml"), "-o", "json", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f}  ({min(values):.{digits}f} to {max(values):.{digits}f})"


def working_bytes(report):
    """The largest rank's peak without weights and optimizer state."""
    return max(r["peak_bytes"] - r["peak_bytes_by_category"]["weights"] - r["peak_bytes_by_category"]["optimizer"]
               for r in report["ranks"])


def speed(binary, rounds):
    one, two = [], []
    for _ in range(rounds):
        one.append(run(binary, "--ranks", "1", "--threads", "2"))
        two.append(run(binary, "--ranks", "2", "--threads", "1", "--comm", "gloo"))
    print(f"sgemm, two threads, GFLOP/s                     {spread([r['sgemm_flops_per_second'] / 1e9 for r in one], 0)}")
    print(f"one rank, two threads: MFU                      {spread([r['mfu'] for r in one])}")
    print(f"one rank, two threads: tokens/s                 {spread([r['tokens_per_second'] for r in one], 0)}")
    print(f"two ranks over Gloo, one thread each: tokens/s  {spread([r['tokens_per_second'] for r in two], 0)}")
    ratios = [b["tokens_per_second"] / a["tokens_per_second"] for a, b in zip(one, two)]
    print(f"  of one rank's                                 {spread(ratios)}")
    print(f"  overlap                                       {spread([r['overlap'] for r in two])}")


def memory(binary):
    flash = {p: run(binary, "--ranks", str(p), "--threads", "1", "--set", "train.steps=1") for p in (2, 4)}
    two, four = working_bytes(flash[2]), working_bytes(flash[4])
    print(f"peak bytes per rank, weights and optimizer aside, MiB: p = 2 {two / 2**20:.1f}, p = 4 {four / 2**20:.1f}, "
          f"ratio {two / four:.2f}")
    small = ["--set", "train.steps=1", "--set", "data.sequence_length=2048", "--set", "model.layers=1",
             "--set", "model.kv_heads=8", "--set", "parallel.attention=tiled", "--set", "parallel.tile_rows=none"]
    scores = {}
    for p in (2, 4):
        report = run(binary, "--ranks", str(p), "--threads", "1", "--set", f"parallel.head_groups={p}", *small)
        scores[p] = max(r["peak_bytes_by_tag"]["scores"] for r in report["ranks"]) // 4
        bound = 2 * 8 * 2048**2 // p**3
        print(f"tiled attention, s = 2048, a = 8, c = p = {p}: scores peak (backward) {scores[p]} elements, "
              f"bound 2 a s^2 / p^3 = {bound}")
    print(f"  ratio p = 2 to p = 4: {scores[2] / scores[4]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(HERE.parent.parent / "build/bin/metp-rank"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    speed(options.binary, options.rounds)
    memory(options.binary)
