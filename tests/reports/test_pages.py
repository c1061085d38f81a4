"""Reports: escaped and self-contained pages, charts drawn to scale, and tables in the terminal."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from html_pages import Read
from matplotlib.figure import Figure
from rich.console import Console

from remuda._reports import charts
from remuda._reports.charts import Bar, Bars, Histogram, as_svg
from remuda._reports.page import Origin, as_html, save
from remuda._reports.report import Report, Table
from remuda._reports.terminal import as_rich, as_text

EVIL = "</title></style><script src='//evil'>\"&<b onclick='x()'>$x_1$"
WHEN = datetime(2026, 11, 22, 19, 30, tzinfo=timezone.utc)
TABLE = Table("Table", ("", "a"), [("one", 1), ("two", 22)], best=1)


def origin(command: str = "remuda bench X") -> Origin:
    return Origin(command, WHEN, (("Processor", "Fast One"),), (("remuda-rl", "1.2.3"), ("numpy", "2.0")))


def drawn(chart: charts.Chart) -> Any:
    """Draws the chart with matplotlib and returns the axes."""
    axes = Figure().add_subplot()
    chart.draw(axes)
    return axes


def test_all_texts_are_escaped(tmp_path: Path) -> None:
    bars = Bars(heading=EVIL, bars=[Bar(EVIL, 1.0, EVIL)], mark=(1.0, EVIL), note=EVIL)
    tables = [Table(EVIL, [EVIL], [[EVIL]]), Table(EVIL, [EVIL, EVIL], [[EVIL, EVIL]], summary=EVIL)]
    report = Report(EVIL, EVIL, tables, [bars], [EVIL], [EVIL], EVIL, EVIL, [tmp_path / EVIL])
    read = Read(as_html(report, Origin(EVIL, WHEN, ((EVIL, EVIL),), ((EVIL, EVIL),))))
    read.check_self_contained()
    assert not {"b", "script"} & {tag for tag, _ in read.elements}
    tags = ("title", "h1", "p", "h2", "li", "summary", "th", "td", "dt", "dd", "text", "code")
    shown = [text for tag in tags for text in read.texts[tag]]
    assert sum(EVIL in text for text in shown) >= 25
    assert read.of("figure")[0]["aria-label"] == EVIL


def test_a_page_has_the_command_machine_and_versions() -> None:
    read = Read(as_html(Report("Title", "Lead.", [TABLE]), origin("remuda bench 'a b' --html x.html")))
    assert read.texts["pre"] == ["remuda bench 'a b' --html x.html"]
    assert list(zip(read.texts["dt"], read.texts["dd"], strict=True)) == [
        ("Processor", "Fast One"),
        ("remuda-rl", "1.2.3"),
        ("numpy", "2.0"),
    ]
    assert read.texts["footer"] == ["Written by remuda 1.2.3 on 2026-11-22 19:30:00 +0000."]
    assert read.texts["h2"] == ["Table", "Command", "Machine", "Versions"]  # parts without content have no heading
    assert read.texts["p"] == ["Lead."]


def test_the_origin_has_this_machine_and_this_command() -> None:
    here = Origin.here()
    assert {"Processor", "System", "Python"} <= set(dict(here.facts))
    assert "remuda-rl" in dict(here.versions) and here.written.tzinfo is not None
    code = "from remuda._reports.page import Origin; print(Origin.here().command)"
    run = subprocess.run([sys.executable, "-c", code, "a b"], capture_output=True, text=True, check=True)
    assert shlex.split(run.stdout)[1:] == ["-c", code, "a b"]


def test_a_page_is_saved_in_a_new_folder_with_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    save(Report("Zoë \udcff", "lead", [TABLE]), origin(), path)
    assert Read(path).texts["h1"][0].startswith("Zoë ")


def test_bars_are_drawn_to_scale() -> None:
    bars = [Bar("a", 50.0, "50", dots=[25.0, 100.0]), Bar("b", 100.0, "100", is_best=True)]
    axes = drawn(Bars(heading="x", bars=bars))
    assert [bar.get_width() for bar in axes.patches] == [50.0, 100.0]
    assert list(axes.lines[0].get_xdata()) == [25.0, 100.0]
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a\n50", "b\n100"]


def test_a_chart_uses_the_colors_of_the_page() -> None:
    chart = Bars(heading="x", bars=[Bar("a", 1.0, "1", [1.0]), Bar("b", 2.0, "2", is_best=True)], mark=(1.5, "m"))
    with mpl.style.context("dark_background"):
        svg = as_svg(chart)
        assert mpl.rcParams["text.color"] == "white"
    assert {"currentColor", "var(--best)", "var(--bar)", "var(--mark)"} <= set(
        svg.replace(";", '"').replace(": ", '"').split('"')
    )
    assert "#ffffff" not in svg and "#000000" not in svg
    assert Read(svg).texts["text"][-1] == "m"


@pytest.mark.parametrize("lengths", [[], [0.0, 0.0]])
def test_bars_of_zero_have_no_length(lengths: list[float]) -> None:
    chart = Bars(heading="x", bars=[Bar("a", length, "0") for length in lengths])
    assert [bar.get_width() for bar in drawn(chart).patches] == lengths
    assert as_svg(chart).startswith("<svg")


def test_a_histogram_counts_values() -> None:
    axes = drawn(Histogram(heading="x", values=[1.0] * 6 + [3.0] * 2))
    assert [bar.get_height() for bar in axes.patches] == [6, 2]


def test_a_nan_mark_is_left_out() -> None:
    assert "nan" not in Read(as_svg(Histogram(heading="x", values=[1.0], mark=(float("nan"), "nan")))).texts["text"]


def test_a_histogram_has_a_limited_number_of_bins() -> None:
    assert len(drawn(Histogram(heading="x", values=[7.0] * 5)).patches) == 1
    many = drawn(Histogram(heading="x", values=[float(i) for i in range(100_000)])).patches
    assert 10 < len(many) <= charts._MOST_BINS


def test_a_video_is_embedded_in_the_page(tmp_path: Path) -> None:
    file = tmp_path / "a & b.mp4"
    file.write_bytes(b"moving")
    read = Read(as_html(Report("t", "l", [TABLE], videos=[file]), origin()))
    assert read.of("video")[0]["src"] == "data:video/mp4;base64,bW92aW5n"
    assert read.texts["figcaption"] == ["a & b.mp4"]


def test_a_report_is_the_same_in_plain_text_and_with_rich() -> None:
    code = "pool = remuda.Pool([make] * 8)  # " + 100 * "x"
    report = Report("t", "Lead [x].", [TABLE], notes=["note"], failures=["two [failed]"], code=code)
    assert as_text(report) == f"Lead [x].\n\n      a\n---  --\none   1\ntwo  22\n\ntwo [failed]\nnote\n\n{code}"
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(as_rich(report), crop=False)
    lines = console.export_text().splitlines()
    for text in ("Lead [x].", "two [failed]", "note", code):
        assert text in lines
    assert [line.split() for line in lines if line.startswith(("one", "two "))][:2] == [["one", "1"], ["two", "22"]]
