"""Checks that formal/README.md names only what exists in the models or the source."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "formal" / "README.md").read_text()
FILES = [path for folder in ("formal", "src") for path in sorted((ROOT / folder).rglob("*.*"))]
TEXTS = {path: path.read_text() for path in FILES if path.suffix in {".py", ".pml", ".cpp", ".hpp"}}


def names(spans: list[str]) -> Iterator[str]:
    """Yields paths, and names of which members have the form `class::member` or `object.member`."""
    for span in spans:
        if re.fullmatch(r"[\w./]+(?:/|\.(?:py|pml|cpp|hpp))", span):
            yield span
        else:
            yield from re.findall(r"[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*", span)


def on_the_page() -> set[str]:
    """Returns all names in tables, and those in the text with an underscore, a capital, a dot or a qualifier."""
    tables = re.findall(r"`([^`\n]+)`", "\n".join(re.findall(r"^\| .*", PAGE, re.MULTILINE)))
    text = re.findall(r"`([^` \n-][^` \n]*)`", re.sub(r"^(\||    ).*", "", PAGE, flags=re.MULTILINE))
    return {*names(tables), *names([span for span in text if re.search(r"_|::|\.|[A-Z]", span)])}


def exists(name: str) -> bool:
    """Returns whether a path exists, or whether a file has all parts of a name."""
    if "/" in name or name.endswith((".py", ".pml", ".cpp", ".hpp")):
        return any(f"{place}/".endswith(f"/{name.rstrip('/')}/") for path in TEXTS for place in (path, path.parent))
    parts = [rf"\b(?:memory_order_)?{part}\b" for part in re.split(r"::|\.", name)]
    return any(all(re.search(part, text) for part in parts) for text in TEXTS.values())


@pytest.mark.parametrize("name", sorted(on_the_page()))
def test_a_name_on_the_page_exists(name: str) -> None:
    assert exists(name)


def test_a_name_that_is_nowhere_is_found() -> None:
    assert not exists("Hub::find_dead") and not exists("pool/workers/outbox.hpp")


def test_the_page_has_the_number_of_mutants() -> None:
    mutants = runpy.run_path(str(ROOT / "formal" / "check.py"))["MUTANTS"]
    assert f"{len(mutants)} wrong variants" in PAGE
