#!/usr/bin/env python3
"""The job file reference in README.md is what proto/metp/v1/job.proto says.

    tests/checks/job_keys.py         exit 1 when README.md differs
    tests/checks/job_keys.py --fix   write the table between its two marks in README.md
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto/metp/v1/job.proto"
README = ROOT / "README.md"
BEGIN, END = "<!-- job keys: begin -->", "<!-- job keys: end -->"
TYPES = {"int32": "integer", "int64": "integer", "double": "number", "bool": "true or false", "string": "text"}

FIELD = re.compile(r"^\s*(optional |repeated )?([\w.]+) (\w+) = \d+\s*\[\(rule\) = \{(.*?)\}\s*\];", re.S | re.M)


def messages(text):
    """Yields (name, body) of each top-level message."""
    for match in re.finditer(r"^message (\w+) \{\n(.*?)^\}", text, re.S | re.M):
        yield match.group(1), match.group(2)


def enums(body):
    """Maps each enum to its values as the job file spells them."""
    found = {}
    for name, values in re.findall(r"enum (\w+) \{(.*?)\}", body, re.S):
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() + "_"
        spelled = [v.removeprefix(prefix).lower() for v in re.findall(r"^\s*(\w+) = \d+;", values, re.M)]
        found[name] = [v for v in spelled if v != "unspecified"]
    return found


def option(rule, key):
    match = re.search(rf'\b{key}: ("(?:[^"\\]|\\.)*"|[\w.+-]+)', rule)
    return match.group(1).strip('"') if match else None


def expected(kind, rule, spelled):
    if kind in spelled:
        return " or ".join(f"`{v}`" for v in spelled[kind])
    text = TYPES[kind]
    bounds = []
    if option(rule, "has_min"):
        bounds.append(("above " if option(rule, "exclusive_min") else "at least ") + (option(rule, "min") or "0"))
    if option(rule, "has_max"):
        bounds.append(("below " if option(rule, "exclusive_max") else "at most ") + (option(rule, "max") or "0"))
    words = [f"`{word.split('=')[0]}`" for word in (option(rule, "words") or "").split()]
    return ", or ".join([" ".join([text, " and ".join(bounds)]).strip(), *words])


def table():
    bodies = dict(messages(PROTO.read_text()))
    lines = ["| key | expected | meaning |", "|---|---|---|"]

    def walk(message, path):
        spelled = enums(bodies[message])
        for label, kind, name, rule in FIELD.findall(re.sub(r"//.*", "", bodies[message])):
            key = f"{path}{name}"
            required = " **required**" if option(rule, "required") else ""
            meaning = (option(rule, "help") or "").replace("|", "\\|")
            if kind in bodies:
                lines.append(f"| `{key}` |{required} | *{meaning}* |")
                walk(kind, key + ".")
                continue
            what = expected(kind, rule, spelled)
            if label.strip() == "repeated":
                count = option(rule, "count")
                what = f"list of {count}, each a {what}" if count else f"list of {what}"
            lines.append(f"| `{key}` | {what}{',' + required if required else ''} | {meaning} |")

    walk("JobSpec", "")
    return "\n".join(lines)


def main():
    text = README.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"README.md: expected the marks {BEGIN} and {END} once each")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    wanted = f"{head}{BEGIN}\n{table()}\n{END}{tail}"
    if "--fix" in sys.argv[1:]:
        README.write_text(wanted)
    elif text != wanted:
        sys.exit("README.md: the table of job keys is not what proto/metp/v1/job.proto says; "
                 "run tests/checks/job_keys.py --fix")


if __name__ == "__main__":
    main()
