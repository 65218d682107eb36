#!/usr/bin/env python3
"""Every document names files that exist: relative links, and `path/to/file.h` in backticks (from the top of the tree, or
from the document's folder or the one above). Names in capitals (`tests/PATH/NAME_test.cc`) and patterns stand for something else.

    tests/checks/documents.py
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
CODE = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:h|cc|cu|proto|sh|py|yaml|md|cmake|txt))`")


def documents():
    for path in ROOT.rglob("*.md"):
        parts = path.relative_to(ROOT).parts
        if not any(part.startswith((".", "build")) for part in parts[:-1]):
            yield path


def main():
    missing = []
    for document in sorted(documents()):
        text = document.read_text()
        for name in sorted(set(LINK.findall(text)) | set(CODE.findall(text))):
            if re.search(r"[A-Z]{2,}[A-Z_]*(?=[/_.])", name.removesuffix("README.md").removesuffix("CMakeLists.txt")):
                continue
            places = [ROOT / name, document.parent / name, document.parent.parent / name, ROOT / "proto" / name]
            if not any(place.exists() for place in places):
                missing.append(f"{document.relative_to(ROOT)}: names {name}, which is not there")
    sys.exit("\n".join(missing) or 0)


if __name__ == "__main__":
    main()
