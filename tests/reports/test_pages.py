"""Pages: escaped, self-contained, drawn to scale."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from html_pages import Read

from remuda._reports import charts, markup
from remuda._reports.charts import Bar, bars, histogram, short
from remuda._reports.origin import Origin
from remuda._reports.page import Page

EVIL = "</title></style><script src='//evil'>\"&<b onclick='x()'>"
WHEN = datetime(2026, 11, 22, 19, 30, tzinfo=timezone.utc)


def origin(command: str = "remuda bench X") -> Origin:
    return Origin(command, WHEN, (("Processor", "Fast One"),), (("remuda", "1.2.3"), ("numpy", "2.0")))


def test_nothing_that_is_named_becomes_markup() -> None:
    page = Page(EVIL, EVIL)
    page.section(EVIL, EVIL, markup.code(EVIL), markup.bullets([EVIL]), markup.folded(EVIL, EVIL))
    page.section("t", markup.table([EVIL], [[EVIL]]), markup.pairs([(EVIL, EVIL)]))
    page.section("c", bars([Bar(EVIL, 1.0, EVIL)], EVIL, (1.0, EVIL)), histogram([1.0], EVIL, (1.0, EVIL)))
    page.origin(Origin(EVIL, WHEN, ((EVIL, EVIL),), ((EVIL, EVIL),)))
    read = Read(page.as_text())
    read.check_self_contained()
    assert not {"b", "script"} & {tag for tag, _ in read.elements}
    shown = [
        text
        for tag in ("title", "h1", "p", "h2", "li", "summary", "th", "dt", "dd", "text")
        for text in read.texts[tag]
    ]
    assert sum(EVIL in text for text in shown) >= 14
    assert read.of("svg")[0]["aria-label"] == EVIL


def test_a_page_says_where_its_figures_come_from() -> None:
    page = Page("Title", "Lead.")
    page.section("Empty", "", markup.bullets([]))
    page.origin(origin("remuda bench 'a b' --html x.html"))
    read = Read(page.as_text())
    assert read.texts["pre"] == ["remuda bench 'a b' --html x.html"]
    assert list(zip(read.texts["dt"], read.texts["dd"], strict=True)) == [
        ("Processor", "Fast One"),
        ("remuda", "1.2.3"),
        ("numpy", "2.0"),
    ]
    assert read.texts["footer"] == ["Written by remuda 1.2.3 on 2026-11-22 19:30:00 +0000."]
    assert "Empty" not in read.texts["h2"]


def test_this_machine_and_this_program_are_told() -> None:
    here = Origin.here()
    assert {"Processor", "System", "Python"} <= set(dict(here.facts))
    assert "remuda" in dict(here.versions) and here.written.tzinfo is not None
    code = "from remuda._reports.origin import Origin; print(Origin.here().command)"
    run = subprocess.run([sys.executable, "-c", code, "a b"], capture_output=True, text=True, check=True)
    assert shlex.split(run.stdout)[1:] == ["-c", code, "a b"]


def test_a_page_is_saved_where_there_is_no_folder_yet_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    Page("Zoë \udcff", "lead").save(path)
    assert Read(path).texts["h1"][0].startswith("Zoë ")


def test_bars_are_drawn_to_scale() -> None:
    read = Read(
        bars([Bar("a", 50.0, "50", dots=[25.0, 100.0]), Bar("b", 100.0, "100", is_best=True)], "x", (200.0, "m"))
    )
    short_bar, long_bar = (float((rect["width"] or "").rstrip("%")) for rect in read.of("rect"))
    dots = [float((dot["cx"] or "").rstrip("%")) for dot in read.of("circle")]
    (mark, *_) = (float((line["x1"] or "").rstrip("%")) for line in read.of("line"))
    assert long_bar == pytest.approx(2 * short_bar, abs=0.02) and mark == pytest.approx(2 * long_bar, abs=0.02)
    assert dots == pytest.approx([short_bar / 2, long_bar], abs=0.02)
    assert [rect["class"] for rect in read.of("rect")] == ["bar", "best"]
    assert mark < 100 and len(read.of("line")) == 2  # one piece for each bar: not through the figures


@pytest.mark.parametrize(("lengths", "most"), [([], 0), ([0.0, 0.0], 0)])
def test_bars_of_nothing_have_no_length(lengths: list[float], most: float) -> None:
    read = Read(bars([Bar("a", length, "0") for length in lengths], "x"))
    assert [float((rect["width"] or "").rstrip("%")) for rect in read.of("rect")] == [most] * len(lengths)


def test_a_histogram_counts_what_is_finite() -> None:
    read = Read(histogram([1.0] * 6 + [3.0] * 2 + [float("nan"), float("inf")], "x", (2.0, "mean 2")))
    counts = [int(text.rpartition(": ")[2]) for text in read.texts["title"]]
    assert sum(counts) == 8 and max(counts) == 6
    heights = [float(rect["height"] or "") for rect in read.of("rect")]
    assert max(heights) / min(heights) == pytest.approx(3, abs=0.01)
    assert read.texts["text"][:2] == ["1", "3"] and "mean 2" in read.texts["text"]
    (line,) = (line for line in read.of("line") if line.get("class") == "mark")
    assert line["x1"] == "50.00%"


@pytest.mark.parametrize("values", [[], [float("nan")]])
def test_a_histogram_of_nothing_is_nothing(values: list[float]) -> None:
    assert histogram(values, "x") == ""


def test_a_histogram_of_one_value_and_of_very_many() -> None:
    assert len(Read(histogram([7.0] * 5, "x")).of("rect")) == 1
    assert len(Read(histogram([float(i) for i in range(100_000)], "x")).of("rect")) <= charts._MOST_BINS


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1.5, "1.5"), (1234, "1234"), (12345, "12.35k"), (-2.5e6, "-2.5M"), (3e10, "30G")]
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_a_video_is_in_the_page(tmp_path: Path) -> None:
    file = tmp_path / "a & b.mp4"
    file.write_bytes(b"moving")
    read = Read(markup.video(file))
    assert read.of("video")[0]["src"] == "data:video/mp4;base64,bW92aW5n"
    assert read.texts["figcaption"] == ["a & b.mp4"]
