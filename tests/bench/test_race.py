"""Races: the order of turns, the steps that count, and failing contenders; their figures, table, JSON and picture."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import pytest
from bench_fakes import COUNTING, FakeClock, FakeContender, busy_result, entry, fakes, result, sample_result
from matplotlib import style

from remuda._bench.contenders import Plan
from remuda._bench.picture import draw, save_picture
from remuda._bench.race import race
from remuda._bench.report import report_on, to_json
from remuda._bench.results import Entry, Result, paired_ratio
from remuda._bench.workloads import Workload, WorkloadError

Kinds: TypeAlias = list[type[FakeContender]]
PLAN = Plan(COUNTING, num_envs=4, num_workers=2)
STEP_SECONDS = {"plain": 1.0, "ours": 0.25, "third": 0.5}


@pytest.fixture
def kinds() -> Kinds:
    return fakes(FakeClock(), STEP_SECONDS)


def run(kinds: Kinds, **options: Any) -> Result:
    return race(kinds, PLAN, seconds=30.0, rounds=3, clock=kinds[0].clock, **options)


def test_a_rate_is_env_steps_over_the_turns_time(kinds: Kinds) -> None:
    found = run(kinds)
    assert [entry.steps_per_second for entry in found.entries] == [4.0, 16.0, 8.0]
    assert [entry.startup_seconds for entry in found.entries] == [2.0] * 3  # a reset takes two seconds
    turns = [turn for entry in found.entries for turn in entry.turns]
    assert [(turn.seconds, turn.env_steps) for turn in turns] == [(10.0, 40)] * 3 + [(10.0, 160)] * 3 + [(10.0, 80)] * 3


def test_contenders_take_turns_in_every_round(kinds: Kinds) -> None:
    run(kinds)
    log = kinds[0].log
    assert [what for _, what in log][:6] == ["build", "reset"] * 3
    steppers = [name for name, what in log if what == "step"]
    assert [name for name, _ in groupby(steppers)] == list(STEP_SECONDS) * 4  # in the warm-up and in three rounds
    ours = [what for name, what in log if name == "ours"]
    assert [what for what, _ in groupby(ours)] == ["build", "reset", *["begin turn", "step"] * 4, "close"]


@pytest.mark.parametrize(("lead_in", "steps"), [(0.0, 4), (5.0, 20)])
def test_the_lead_in_is_stepped_and_not_counted(kinds: Kinds, lead_in: float, steps: int) -> None:
    counted = sum(turn.batches for turn in run(kinds, lead_in=lead_in).entries[1].turns)
    warm_up = 2
    assert kinds[0].log.count(("ours", "step")) == counted + warm_up + 3 * steps


@pytest.mark.parametrize("phase", ["build", "reset", "begin turn", "step"])
def test_a_contender_that_raises_drops_out_and_the_others_continue(kinds: Kinds, phase: str) -> None:
    kinds[2].fails_at = phase
    plain, ours, third = run(kinds).entries
    assert (third.error, third.turns) == ("RuntimeError: out of hay", [])
    assert len(plain.turns) == len(ours.turns) == 3


def test_an_interrupt_closes_all(kinds: Kinds) -> None:
    kinds[1].fails_at, kinds[1].failure = "step", KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(kinds)
    assert sorted(name for name, what in kinds[0].log if what == "close") == sorted(STEP_SECONDS)


def test_an_env_that_cannot_be_built_ends_the_race_before_it_begins(kinds: Kinds) -> None:
    plan = Plan(Workload("nowhere", lambda: 1 / 0), num_envs=4, num_workers=2)  # type: ignore[arg-type, return-value]
    with pytest.raises(WorkloadError, match="nowhere: ZeroDivisionError: division by zero"):
        race(kinds, plan, seconds=1.0, rounds=1)
    assert kinds[0].log == []


# -- the report ------------------------------------------------------------------------------------------


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
