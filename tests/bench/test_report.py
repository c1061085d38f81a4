"""The table, JSON and picture of a benchmark result."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench_fakes import entry, result, sample_result
from rich.console import Console

from remuda._bench import report
from remuda._bench.report import report_on, to_json
from remuda._bench.results import Entry, Result, Turn
from remuda._reports import terminal
from remuda._reports.charts import save_picture
from remuda._system.machine import cpu_model


def text_of(found: Result, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(terminal.as_rich(report_on(found)))
    return console.export_text()


def row_of(text: str, name: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name).split()


def test_the_row_of_remuda_has_all_figures() -> None:
    expected = ["210,000", "200k-220k", "1.00", "0.50", "s", "12.3", "75%"]
    assert row_of(text_of(sample_result()), "remuda") == expected


def test_a_peers_row_has_the_speed_ratio_of_remuda() -> None:
    assert row_of(text_of(sample_result()), "slow")[:5] == ["1,000", "1k-1.1k", "0.005", "200", "x"]


def test_the_error_of_a_failed_row_follows_the_table() -> None:
    text = text_of(sample_result())
    assert row_of(text, "broken") == ["failed"]
    assert "broken failed: ValueError: no [hay] left" in text


def test_without_rich_the_table_is_plain_text() -> None:
    text = terminal.as_text(report_on(sample_result()))
    assert row_of(text, "remuda") == row_of(text_of(sample_result(), 200), "remuda")
    assert "broken failed: ValueError: no [hay] left" in text
    header, line = text.splitlines()[2:4]
    assert header.split()[:3] == ["steps/s", "min-max", "of"] and set(line) == {"-", " "}
    assert all(len(row) <= len(header) for row in text.splitlines()[2:7])


def test_notes_name_the_ideal_and_disturbing_contenders() -> None:
    text = text_of(sample_result())
    assert "ideal: 2 x the plain loop = 220,000 env steps/s" in text
    assert "slow: its idle workers took 10% of the CPU while others were measured" in text
    assert "remuda: its idle" not in text


def test_notes_explain_the_columns() -> None:
    assert "remuda is: remuda's speed divided by that row's" in text_of(sample_result())


def test_every_form_of_a_report_says_that_the_machine_was_busy(tmp_path: Path) -> None:
    def measured(others: float) -> Result:
        turns = [Turn(1000, seconds=1.0, cpu_seconds=1.5, others_cpu_seconds=others)]
        return replace(result(Entry("plain loop", turns=turns), Entry("remuda", turns=turns)), cpus=2)

    busy = text_of(measured(0.4), width=200)
    assert "the machine was busy: other programs took 20% of the CPU meanwhile, what is measured here 75%" in busy
    assert "busy" not in text_of(measured(0.05))
    assert to_json(measured(0.4))["others_cpu_share"] == 0.2
    one = report_on(measured(0.4))
    assert one.chart is not None
    save_picture(one.chart, one.title, tmp_path / "picture.svg")
    assert "the machine was busy: other programs took 20% of the CPU" in (tmp_path / "picture.svg").read_text()


def test_the_table_fits_a_narrow_terminal() -> None:
    text = text_of(result(entry("plain loop", [9_876_543] * 3), entry("gymnasium-sync", [1_234_567] * 3)))
    assert "…" not in text


def test_a_result_without_turns_can_be_shown() -> None:
    text = text_of(result(Entry("plain loop"), Entry("remuda")))
    assert row_of(text, "remuda") == []


def test_json_round_trips_with_all_figures() -> None:
    found = json.loads(json.dumps(to_json(sample_result())))
    assert found["schema"] == 1
    assert (found["env"], found["num_envs"], found["num_workers"], found["cores"]) == (
        "CartPole-v1",
        64,
        2,
        2,
    )
    assert found["ideal_steps_per_second"] == 220_000
    assert set(found["machine"]) == {"cpu", "system", "python", "versions"}
    assert [contender["name"] for contender in found["contenders"]] == [
        "plain loop",
        "remuda",
        "slow",
        "broken",
    ]


def test_json_has_all_figures_of_a_contender() -> None:
    _, remuda, _, broken = to_json(sample_result())["contenders"]
    assert remuda.pop("rounds") == [
        {
            "env_steps": steps,
            "seconds": 1.0,
            "cpu_seconds": 1.5,
            "others_cpu_seconds": 0.0,
            "parent_cpu_seconds": 0.0,
            "batches": 0,
            "learning_seconds": 0.0,
        }
        for steps in (200_000, 210_000, 220_000)
    ]
    assert remuda == {
        "name": "remuda",
        "error": None,
        "num_workers": 2,
        "steps_per_second": 210_000,
        "ratio_to_ideal": 1.0,
        "remuda_is_times_as_fast": 1.0,
        "startup_seconds": 0.5,
        "worker_mb": 12.3,
        "cpu_share": 0.75,
        "idle_cpu_share": 0.0,
    }
    assert broken["error"] == "ValueError: no [hay] left"
    assert broken["steps_per_second"] is None


def test_a_chart_is_saved_as_png(tmp_path: Path) -> None:
    path = tmp_path / "bench.png"
    save_picture(report.chart(sample_result()), "title", path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_chart_is_saved_as_svg(tmp_path: Path) -> None:
    path = tmp_path / "bench.svg"
    save_picture(report.chart(sample_result()), "title", path)
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_a_plot_without_a_plain_loop_has_no_ideal(tmp_path: Path) -> None:
    path = tmp_path / "bench.png"
    chart = report.chart(result(Entry("plain loop", error="gone"), entry("remuda", [1.0])))
    save_picture(chart, "title", path)
    assert chart.mark is None
    assert path.stat().st_size > 0


@pytest.mark.parametrize(
    ("cpuinfo", "model"), [("model name\t: Fast One\nmodel name\t: Fast One\n", "Fast One"), ("", None)]
)
def test_the_cpu_model_is_read_from_cpuinfo(tmp_path: Path, cpuinfo: str, model: str | None) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    found = cpu_model(path)
    assert found == model if model else found
