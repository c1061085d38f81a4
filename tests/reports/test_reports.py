"""Reports: charts drawn to scale, and tables in the terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import style
from matplotlib.figure import Figure
from rich.console import Console

from remuda._reports.charts import Bar, Bars, save_picture
from remuda._reports.report import Report, Table
from remuda._reports.terminal import as_rich, as_text

TABLE = Table(("", "a"), [("one", 1), ("two", 22)], best=1)


def drawn(chart: Bars) -> Any:
    """Draws the chart with matplotlib and returns the axes."""
    axes = Figure().add_subplot()
    chart.draw(axes)
    return axes


def test_bars_are_drawn_to_scale() -> None:
    bars = [Bar("a", 50.0, "50", dots=[25.0, 100.0]), Bar("b", 100.0, "100", is_best=True)]
    axes = drawn(Bars(heading="x", bars=bars))
    assert [bar.get_width() for bar in axes.patches] == [50.0, 100.0]
    assert list(axes.lines[0].get_xdata()) == [25.0, 100.0]
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a\n50", "b\n100"]


@pytest.mark.parametrize("lengths", [[], [0.0, 0.0]])
def test_bars_of_zero_have_no_length(lengths: list[float]) -> None:
    chart = Bars(heading="x", bars=[Bar("a", length, "0") for length in lengths])
    assert [bar.get_width() for bar in drawn(chart).patches] == lengths


def test_a_picture_has_its_texts_and_ignores_the_programs_style(tmp_path: Path) -> None:
    chart = Bars(heading="x", bars=[Bar("$a$", 1.0, "1", [1.0])], mark=(1.5, "ideal"), note="one bar")
    with style.context("dark_background"):
        save_picture(chart, "title", tmp_path / "picture.svg")
        assert mpl.rcParams["text.color"] == "white"
    text = (tmp_path / "picture.svg").read_text()
    assert all(part in text for part in ("title", "$a$", "ideal", "one bar"))
    save_picture(Bars(heading="x", bars=[], mark=(float("nan"), "nan")), "title", tmp_path / "nan.svg")
    assert ">nan<" not in (tmp_path / "nan.svg").read_text()


def test_a_report_is_the_same_in_plain_text_and_with_rich() -> None:
    report = Report("Lead [x].", TABLE, notes=["note"], failures=["two [failed]"])
    assert as_text(report) == "Lead [x].\n\n      a\n---  --\none   1\ntwo  22\n\ntwo [failed]\nnote"
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(as_rich(report))
    lines = console.export_text().splitlines()
    for text in ("Lead [x].", "two [failed]", "note"):
        assert text in lines
    assert [line.split() for line in lines if line.startswith(("one", "two "))][:2] == [["one", "1"], ["two", "22"]]
