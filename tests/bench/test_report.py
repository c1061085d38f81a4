"""The figures of a benchmark, and its table, JSON and picture."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import picture
import pytest
from bench_fakes import busy_result, entry, result, sample_result
from matplotlib import style

from remuda._bench.picture import draw, save_picture
from remuda._bench.report import report_on, to_json
from remuda._bench.results import Entry, paired_ratio


def row_of(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name).split()


def test_ratios_pair_the_rates_of_a_round() -> None:
    slow_for_a_while = entry("base", [100, 10, 100])
    assert paired_ratio(entry("ours", [200, 20, 200]), slow_for_a_while) == 2.0
    assert paired_ratio(entry("dropped out", [300]), slow_for_a_while) == 3.0
    assert paired_ratio(Entry("blank"), slow_for_a_while) is None


def test_the_ideal_is_the_plain_loop_on_every_core() -> None:
    found = result(entry("plain loop", [100, 120, 110]), entry("remuda", [180, 180, 180]))
    assert found.ideal == 220.0
    assert found.ratio_to_ideal(found.plain) == 0.5
    assert found.ratio_to_ideal(found.remuda) == pytest.approx(180 / 110 / 2)


def test_a_report_has_all_figures() -> None:
    text = report_on(sample_result())
    assert text.startswith("counting: 64 envs, 2 workers. remuda: 210,000 env steps per second")
    assert row_of(text, "remuda  ") == ["210,000", "200,000-220,000", "1.00", "0.50", "s"]
    assert row_of(text, "slow") == ["1,000", "1,000-1,100", "0.005", "200", "x"]
    assert row_of(text, "broken") == ["failed"]
    assert max(map(len, text.split("\n\n")[1].splitlines())) <= 80
    assert "broken failed: ValueError: no [hay] left" in text
    assert "ideal: 2 cores x the plain loop = 220,000 env steps/s" in text


def test_a_report_says_that_the_machine_was_busy() -> None:
    assert "the machine was busy: other programs took 20% of the CPU" in report_on(busy_result())
    assert "busy" not in report_on(sample_result())


def test_json_has_all_figures() -> None:
    found = json.loads(json.dumps(to_json(sample_result())))
    assert (found["env"], found["num_envs"], found["num_workers"], found["cores"]) == ("counting", 64, 2, 2)
    assert found["ideal_steps_per_second"] == 220_000
    assert set(found["machine"]) == {"cpu", "system", "python", "versions"}
    _, remuda, _, broken = found["contenders"]
    assert [turn["env_steps"] for turn in remuda["rounds"]] == [200_000, 210_000, 220_000]
    assert (remuda["name"], remuda["steps_per_second"], remuda["ratio_to_ideal"]) == ("remuda", 210_000, 1.0)
    assert (broken["error"], broken["steps_per_second"]) == ("ValueError: no [hay] left", None)


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
