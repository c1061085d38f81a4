"""Puts what a benchmark printed into README.md beside it, between the two comments that name it."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).with_name("README.md")


def write_section(name: str, text: str, path: Path = README) -> None:
    """Replace what stands between ``<!-- name -->`` and ``<!-- /name -->``."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    content = path.read_text()
    if not pattern.search(content):
        raise ValueError(f"expected {begin} and {end} in {path}, got neither")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", content))
