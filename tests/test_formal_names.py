"""Checks that formal/README.md names only what exists in the models or the source."""

from __future__ import annotations

import functools
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "formal" / "README.md").read_text()
MODELS = sorted((ROOT / "formal").glob("*.pml"))
SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".cpp", ".hpp"})
FILE = re.compile(r"[\w./]+(?:/|\.(?:py|pml|cpp|hpp))")


def _spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def _rows() -> Iterator[tuple[str, str]]:
    """Yields the first and the last cell of each table row: names in a model, and names in the source."""
    for line in PAGE.splitlines():
        if line.startswith("| "):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            yield cells[0], cells[-1]


def _names(place: int) -> list[str]:
    return sorted({span for row in _rows() for span in _spans(row[place])})


def _prose() -> list[str]:
    """Returns the names outside of tables: files, and names with an underscore, a capital or a qualifier."""
    lines = [line for line in PAGE.splitlines() if not line.startswith(("|", "    "))]
    spans = {span for span in _spans("\n".join(lines)) if " " not in span and not span.startswith("-")}
    return sorted(span for span in spans if re.search(r"_|::|\.|[A-Z]", span))


@functools.cache
def _text(path: Path) -> str:
    return path.read_text()


def _has(path: Path, name: str) -> bool:
    return re.search(rf"\b(?:memory_order_)?{re.escape(name)}\b", _text(path)) is not None


def _exists(span: str, files: list[Path]) -> bool:
    """Returns whether `files` have all names of a span. A member must be in a file that names its class, too."""
    if FILE.fullmatch(span):
        folder = span.endswith("/")
        paths = {path.parent if folder else path for path in [*files, *MODELS, ROOT / "formal" / "check.py"]}
        return any(f"{path}/".endswith(f"/{span.rstrip('/')}/") for path in paths)
    names = re.findall(r"[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*", span)
    return all(any(all(_has(path, part) for part in re.split(r"::|\.", name)) for path in files) for name in names)


@pytest.mark.parametrize("span", _names(0))
def test_a_name_in_a_column_of_models_is_in_a_model(span: str) -> None:
    assert _exists(span, MODELS)


@pytest.mark.parametrize("span", _names(1))
def test_a_name_in_a_column_of_sources_is_in_the_source(span: str) -> None:
    assert _exists(span, SOURCES)


@pytest.mark.parametrize("span", _prose())
def test_a_name_in_the_text_exists(span: str) -> None:
    assert _exists(span, MODELS) or _exists(span, [*SOURCES, ROOT / "formal" / "check.py"])


def test_a_name_that_is_nowhere_is_found() -> None:
    assert not _exists("Hub::find_dead", SOURCES)
    assert not _exists("pool/workers/outbox.hpp", SOURCES)
    assert not _exists("find_dead", MODELS)


def test_the_page_has_the_number_of_mutants() -> None:
    mutants = runpy.run_path(str(ROOT / "formal" / "check.py"))["MUTANTS"]
    assert f"{len(mutants)} wrong variants" in PAGE
