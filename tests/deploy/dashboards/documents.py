"""What the documents and the files that Prometheus and Grafana read say."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "deploy/prometheus/README.md"
RULES = ROOT / "deploy/prometheus/rules.yaml"
RULES_TEST = Path(__file__).with_name("rules_test.yaml")


def table(name):
    """Rows of a marked table of the README, by the name in their first column."""
    text = README.read_text()
    part = text[text.index(f"<!-- {name}: begin -->"):text.index(f"<!-- {name}: end -->")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line.startswith("| `")]
    names = [row[0].strip("`") for row in rows]
    assert len(names) == len(set(names)), f"twice in the table: {sorted({n for n in names if names.count(n) > 1})}"
    return dict(zip(names, rows))


def documented_metrics():
    """{name: (type, unit, set of labels)}"""
    return {name: (row[1], row[2], set(re.findall(r"`(\w+)`", row[3]))) for name, row in table("metrics").items()}


def exported_metrics(text):
    """Of one page of metrics: {name: (type, help)}, [(name, labels)]."""
    families, samples = {}, []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, text_of_it = line.split(" ", 3)
            families[name] = ("untyped", text_of_it)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            families[name] = (kind, families.get(name, ("", ""))[1])
        elif line:
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            samples.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))))
    return families, samples


def dashboards():
    """{file name: dashboard}"""
    return {path.name: json.loads(path.read_text()) for path in sorted((ROOT / "deploy/grafana").glob("*.json"))}


def panels(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def variables(dashboard):
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


def queries(dashboard):
    """(panel's title, expression)"""
    return [(panel["title"], target["expr"]) for panel in panels(dashboard) for target in panel.get("targets", [])]


def rules():
    """[(alert or record, name, text of the rule)]"""
    parts = re.split(r"^      - (?=alert|record)", RULES.read_text(), flags=re.M)[1:]
    return [(*re.match(r"(alert|record): (\S+)", part).groups(), part) for part in parts]


def expression(rule):
    """The expression in a rule's text."""
    return re.search(r"^        expr: (?:\|\n)?((?:.*\n)(?:          .*\n)*)", rule, flags=re.M).group(1)


def metrics_in(expr):
    """(name, labels that it is asked for) of each metric of METP in a query; names of recording rules have colons."""
    for name, selector in re.findall(r"(?<![\w:])(metp_\w+)(?![\w:])(?:\{([^}]*)\})?", re.sub(r"metp-\w+", "", expr)):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
