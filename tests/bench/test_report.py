"""The figures of a benchmark, and its table and JSON."""

from __future__ import annotations

import json

import pytest
from bench_fakes import busy_result, entry, result, sample_result

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
