"""Puts the output of a benchmark into the benchmarks' README.md, between the two comments with its name."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def write_section(name: str, text: str, path: Path = README) -> None:
    """Replaces the text between ``<!-- name -->`` and ``<!-- /name -->``. Raises ValueError if they are missing."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    content = path.read_text()
    if not pattern.search(content):
        raise ValueError(f"expected {begin} and {end} in {path}, got neither")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", content))
