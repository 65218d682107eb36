#!/usr/bin/env python3
"""A trace that `metpctl trace` wrote, as a picture: trace_picture.py TRACE.json PICTURE.svg [--step N]

One step of every rank on one time axis, with the tracks of compute, waits and communication; colours are passes. Spans that
follow each other closely and bear one name are drawn as one. Standard library only.
"""
import argparse
import json
from html import escape

TRACKS = ["compute", "wait", "ring", "copy out", "copy in", "host"]
COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#b6992d", "#9c755f", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#1f3d5a",
           "#555555", "#d37295"]
WAITS = {"exposed": "#e15759", "skew": "#c8c8c8"}
LEFT, WIDTH, HEIGHT, GAP = 130, 960, 13, 3  # of the names, of the axis, of a track, between tracks
APART, NARROWEST = 0.4, 0.8  # pixels between spans that are drawn apart; of a span


def read(path):
    """Names of processes and tracks, and the complete events of each (process, track)."""
    processes, tracks, spans = {}, {}, {}
    for event in json.load(open(path))["traceEvents"]:
        key = event["pid"], event["tid"]
        if event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            tracks[key] = event["args"]["name"]
        elif event["ph"] == "X":
            spans.setdefault(key, []).append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return processes, {(pid, tracks[pid, tid]): sorted(found) for (pid, tid), found in spans.items()}


def merged(spans, begin, end, scale):
    """The spans of [begin, end], in pixels; neighbours of one name as one."""
    out = []
    for start, stop, name in spans:
        if stop <= begin or start >= end:
            continue
        left, right = (max(start, begin) - begin) * scale, (min(stop, end) - begin) * scale
        if out and out[-1][2] == name and left - out[-1][1] < APART:
            out[-1] = (out[-1][0], max(right, out[-1][1]), name)
        else:
            out.append((left, right, name))
    return [(left, max(right, left + NARROWEST), name) for left, right, name in out]


def draw(path, step):
    processes, spans = read(path)
    steps = sorted({int(name.split()[1]) for (_, track), found in spans.items() if track == "step" for _, _, name in found})
    step = step or steps[0]
    own = {pid: next((s for s in spans[pid, "step"] if s[2] == f"step {step}"), None) for pid in processes}
    begin, end = min(s[0] for s in own.values()), max(s[1] for s in own.values())
    scale = WIDTH / (end - begin)
    computed = sorted(span for (_, track), found in spans.items() if track == "compute" for span in found if span[0] >= begin)
    passes = list(dict.fromkeys(name for _, _, name in computed))  # in the order in which they begin
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(passes)}

    def fill(track, name):
        return WAITS[name.split(", ")[1]] if track == "wait" else colour.get(name, "#888888")

    out, y = [], 34
    for pid in sorted(processes):
        out.append(f'<text x="0" y="{y + 11}" font-weight="bold">{escape(processes[pid])}</text>')
        y += 16
        for track in (t for t in TRACKS if (pid, t) in spans):
            out.append(f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{track}</text>')
            out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="#f4f4f4"/>')
            shapes = {}
            for left, right, name in merged(spans[pid, track], begin, end, scale):
                shapes.setdefault(fill(track, name), []).append(
                    f"M{LEFT + left:.1f} {y}h{right - left:.1f}v{HEIGHT}h-{right - left:.1f}z")
            out += [f'<path fill="{f}" d="{"".join(d)}"/>' for f, d in shapes.items()]
            y += HEIGHT + GAP
        y += 8
    bottom = y
    milliseconds = (end - begin) / 1000
    tick = next(t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10 ** 9) if milliseconds / t <= 10)
    axis = [f'<text x="{LEFT}" y="12">step {step}, {milliseconds:,.0f} ms</text>']
    for i in range(int(milliseconds / tick) + 1):
        x = LEFT + i * tick * 1000 * scale
        axis.append(f'<path d="M{x:.1f} 30V{bottom}" stroke="#dddddd"/>'
                    f'<text x="{x:.1f}" y="27" text-anchor="middle">{i * tick}</text>')
    legend, x, y = [], LEFT, bottom + 4
    for name, shade in [*colour.items(), ("wait: data on its way", WAITS["exposed"]),
                        ("wait: a neighbour not ready", WAITS["skew"])]:
        if x + 20 + 6.2 * len(name) > LEFT + WIDTH:
            x, y = LEFT, y + 17
        legend.append(f'<rect x="{x:.0f}" y="{y}" width="11" height="11" fill="{shade}"/>'
                      f'<text x="{x + 15:.0f}" y="{y + 10}">{escape(name)}</text>')
        x += 32 + 6.2 * len(name)
    width, height = LEFT + WIDTH + 12, y + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="11" fill="#222222">\n<rect width="{width}" height="{height}" '
            f'fill="white"/>\n' + "\n".join(axis + out + legend) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--step", type=int, help="which one; default: the first")
    arguments = parser.parse_args()
    with open(arguments.picture, "w") as file:
        file.write(draw(arguments.trace, arguments.step))


if __name__ == "__main__":
    main()
