"""The published figures in results.json, and the pages and pictures that are generated from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import pages, results
from harness.results import Section
from harness.tables import Table

TABLE = Table(["env", "goal", "rate"], [["a", "1", "5"], ["a", "2", "5"], ["b [1]", "1", "6"]])
BUSY = "The machine was busy."


def test_the_pages_are_generated_from_the_results() -> None:
    """If this fails, a page was edited by hand. ``python benchmarks/picture.py`` writes the pages again."""
    sections = results.load()
    full, readme = ((results.FOLDER / name).read_text() for name in (pages.FULL, pages.README))
    assert full == pages.full_page(sections)
    assert readme == pages.with_small_tables(readme, sections)


def test_sections_are_stored_as_they_are(tmp_path: Path) -> None:
    sections = {"one": Section(["x [y", TABLE], [BUSY]), "two: more": Section([TABLE, "z\n"], [])}
    results.save(sections, tmp_path)
    assert results.load(tmp_path) == sections


def test_a_stored_section_is_on_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SMALL", {"one": ("env", "rate", "not measured")})
    readme = tmp_path / pages.README
    readme.write_text("above\n<!-- one -->\nold\n<!-- /one -->\nbelow\n")
    results.save({}, tmp_path)
    pages.store("one", Section([TABLE, "note"], [BUSY]), tmp_path)
    full = (tmp_path / pages.FULL).read_text()
    assert full.count("## `one.py`") == 1
    assert full.endswith(f"**{BUSY}**\n\n{TABLE}\n\nnote\n")
    small = "| env | rate |\n| --- | --- |\n| a | 5 |\n| b [1] | 6 |"
    assert readme.read_text() == f"above\n<!-- one -->\n**{BUSY}**\n\n{small}\n<!-- /one -->\nbelow\n"


def test_a_small_table_needs_its_place() -> None:
    with pytest.raises(ValueError, match="expected <!-- throughput --> and <!-- /throughput -->"):
        pages.with_small_tables("", results.load())
