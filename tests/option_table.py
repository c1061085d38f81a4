"""Generates the option table in docs/pool.md from the docstring of PoolOptions: `python tests/option_table.py`."""

from __future__ import annotations

import re
from pathlib import Path

from remuda import PoolOptions

DOCUMENT = Path(__file__).parents[1] / "docs" / "pool.md"
_BEGIN, _END = "<!-- options -->\n", "<!-- end of options -->"


def table() -> str:
    """Returns a row for each option: its name, its default, its meaning."""
    rows = [("option", "default", "meaning"), ("---", "---", "---")]
    entries = re.findall(r"^ {8}(\w+) \((.+?)\): (.*(?:\n {12}.*)*)", PoolOptions.__doc__ or "", re.MULTILINE)
    rows += [(f"`{name}`", f"`{default}`", " ".join(text.split())) for name, default, text in entries]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def with_table(text: str) -> str:
    """Returns the document with the table as it must be."""
    head, rest = text.split(_BEGIN)
    return f"{head}{_BEGIN}\n{table()}\n\n{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
