"""Prints the part of CHANGELOG.md about a version, as the notes of its release: `release_notes.py 0.1.0`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes_of(version: str, changelog: str) -> str:
    """Returns the text below the heading of a version. Raises SystemExit if there is none."""
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        sys.exit(f"expected a heading '## {version}' with text below it in {_CHANGELOG.name}, found none")
    return found[1].strip()


if __name__ == "__main__":
    print(notes_of(sys.argv[1], _CHANGELOG.read_text("utf-8")))
