"""The figures of a benchmark, and its table, JSON and picture."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from bench_fakes import entry, result, sample_result
from rich.console import Console

from remuda._bench import report
from remuda._bench.report import report_on, to_json
from remuda._bench.results import Entry, Result, Turn, paired_ratio
from remuda._reports import terminal
from remuda._reports.charts import save_picture
from remuda._system.cores import usable_cpus


def text_of(found: Result) -> str:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(terminal.as_rich(report_on(found)))
    return console.export_text()


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


@pytest.mark.parametrize("has_rich", [True, False])
def test_a_row_has_all_figures(has_rich: bool) -> None:
    text = text_of(sample_result()) if has_rich else terminal.as_text(report_on(sample_result()))
    assert row_of(text, "remuda") == ["210,000", "200,000-220,000", "1.00", "0.50", "s"]
    assert row_of(text, "slow") == ["1,000", "1,000-1,100", "0.005", "200", "x"]
    assert row_of(text, "broken") == ["failed"]
    assert "broken failed: ValueError: no [hay] left" in text
    assert "ideal: 2 cores x the plain loop = 220,000 env steps/s" in text


def test_a_result_without_turns_can_be_shown() -> None:
    assert row_of(text_of(result(Entry("plain loop"), Entry("remuda"))), "remuda") == []


def test_the_table_and_the_picture_say_that_the_machine_was_busy(tmp_path: Path) -> None:
    turns = [Turn(1000, 1, seconds=1.0, others_cpu_seconds=0.2 * usable_cpus())]
    busy, path = result(Entry("plain loop", turns=turns), Entry("remuda", turns=turns)), tmp_path / "bench.svg"
    save_picture(report.chart(busy), "title", path)
    for text in (text_of(busy), path.read_text()):
        assert "the machine was busy: other programs took 20% of the CPU" in text
    assert "busy" not in text_of(sample_result())


def test_json_has_all_figures() -> None:
    found = json.loads(json.dumps(to_json(sample_result())))
    assert (found["env"], found["num_envs"], found["num_workers"], found["cores"]) == ("counting", 64, 2, 2)
    assert found["ideal_steps_per_second"] == 220_000
    assert set(found["machine"]) == {"cpu", "system", "python", "versions"}
    _, remuda, _, broken = found["contenders"]
    assert [turn["env_steps"] for turn in remuda["rounds"]] == [200_000, 210_000, 220_000]
    assert (remuda["name"], remuda["steps_per_second"], remuda["ratio_to_ideal"]) == ("remuda", 210_000, 1.0)
    assert (broken["error"], broken["steps_per_second"]) == ("ValueError: no [hay] left", None)


def test_a_picture_has_a_bar_for_each_contender_with_figures(tmp_path: Path) -> None:
    chart = report.chart(sample_result())
    assert [(bar.name, bar.is_best, len(bar.dots)) for bar in chart.bars] == [
        ("plain loop", False, 3),
        ("remuda", True, 3),
        ("slow", False, 3),
    ]
    save_picture(chart, "title", tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_a_picture_without_a_plain_loop_has_no_ideal() -> None:
    assert report.chart(result(Entry("plain loop", error="gone"), entry("remuda", [1.0]))).mark is None
