"""The picture of a benchmark is drawn to scale."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import picture
from bench_fakes import busy_result, entry, result, sample_result
from matplotlib import style

from remuda._bench.picture import draw, save_picture


def test_contenders_with_figures_have_a_bar_with_dots() -> None:
    (axes,) = draw(sample_result()).axes
    assert [bar.get_width() for bar in axes.patches] == [110_000, 210_000, 1000]
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()
    dots, ideal = axes.lines[1], axes.lines[-1]
    assert (list(dots.get_xdata()), list(ideal.get_xdata())) == ([200_000, 210_000, 220_000], [220_000] * 2)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[1] == "remuda\n210,000 (1.00 of the ideal, 2.00 x a plain loop)"


def test_a_picture_without_a_plain_loop_has_no_ideal() -> None:
    (axes,) = draw(result(entry("plain loop", error="gone"), entry("remuda", [1.0]))).axes
    assert (len(axes.patches), len(axes.lines)) == (1, 1)


def test_a_picture_has_its_texts_and_ignores_the_programs_style(tmp_path: Path) -> None:
    busy = busy_result()
    busy.remuda.name = "$remuda$"
    with style.context("dark_background"):
        save_picture(busy, "title", tmp_path / "picture.svg")
        assert mpl.rcParams["text.color"] == "white"
    text = (tmp_path / "picture.svg").read_text()
    assert all(part in text for part in ("title", "$remuda$", "ideal: 2 x plain loop", "64 envs, 2 workers"))
    assert "the machine was busy: other programs took 20% of the CPU" in text


def test_the_pictures_of_the_scripts_have_the_warnings(tmp_path: Path) -> None:
    picture.draw({"null": {"remuda": 0.5}}, "a machine; 2 cores", tmp_path / "speed.svg", ["The machine was busy."])
    assert "The machine was busy." in (tmp_path / "speed.svg").read_text()
