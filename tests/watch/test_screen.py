"""A screen of `remuda top` is never longer than the terminal, and its last line lists the keys."""

from __future__ import annotations

import io
import re
import sys

import pytest
from made_up_stats import US, each, snapshot

if sys.platform != "linux":
    pytest.skip("it reads /proc", allow_module_level=True)
pytest.importorskip("rich")

from rich.console import Console

from remuda._watch.pages import View, open_page
from remuda._watch.screen import draw

TITLE = "remuda top  herd, process 4145: 512 envs in 2 process workers"
# The verdict of these stats takes several lines of 80 columns.
STATS = snapshot(steps=[each(1000 * US)] * 512, workers=2, waited=300_000 * US, own=200 * US)


@pytest.mark.parametrize("page", ["envs", "workers", "env"])
@pytest.mark.parametrize("lines", [22, 24, 50])
def test_a_screen_fits_with_a_long_verdict(lines: int, page: str) -> None:
    console = Console(width=80, height=lines, file=io.StringIO(), force_terminal=True, color_system=None)
    view = View("workers", "busy") if page == "workers" else View(page)
    console.print(draw(TITLE, open_page(STATS, STATS, view), 0, console, "written: remuda-top-4145-120000.json"))
    shown = console.file.getvalue().rstrip("\n").splitlines()  # type: ignore[attr-defined]
    assert len(shown) <= lines
    assert "q quit" in shown[-1] and "written: " in shown[-2]
    assert any("env step: " in line for line in shown)


@pytest.mark.parametrize("page", ["envs", "workers", "env"])
@pytest.mark.parametrize(("lines", "width"), [(10, 40), (10, 80), (6, 20), (24, 40)])
def test_a_small_terminal_shows_the_table(lines: int, width: int, page: str) -> None:
    console = Console(width=width, height=lines, file=io.StringIO(), force_terminal=True, color_system=None)
    view = View("workers", "busy") if page == "workers" else View(page)
    console.print(draw(TITLE, open_page(STATS, STATS, view), 0, console, ""))
    shown = console.file.getvalue().rstrip("\n").splitlines()  # type: ignore[attr-defined]
    assert len(shown) <= lines
    assert "q quit" in " ".join(shown[-4:])
    heading = {"envs": "env", "workers": "worker", "env": "env 0"}[page]
    (at,) = [number for number, line in enumerate(shown) if line.split("  ")[0].strip().startswith(heading)][:1]
    rows = [line for line in shown[at + 1 :] if re.match(r" *\d+ |\w+…? ", line)]
    assert len(rows) >= min(2, lines - 5), shown


def test_a_screen_names_the_range_of_rows() -> None:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(draw(TITLE, open_page(STATS, STATS, View(sort="env")), 500, console, ""))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "of 512" in text and "500 " in text  # the marked row
