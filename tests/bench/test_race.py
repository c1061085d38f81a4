"""The order of turns, the steps that count, and failing contenders."""

from __future__ import annotations

from itertools import groupby
from typing import Any, TypeAlias

import pytest
from bench_fakes import COUNTING, FakeClock, FakeContender, fakes

from remuda._bench.contenders import Plan
from remuda._bench.race import race
from remuda._bench.results import Result
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
    result = run(kinds)
    assert [entry.steps_per_second for entry in result.entries] == [4.0, 16.0, 8.0]
    assert [entry.startup_seconds for entry in result.entries] == [2.0] * 3  # a reset takes two seconds
    turns = [turn for entry in result.entries for turn in entry.turns]
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


def test_progress_counts_up_to_its_total(kinds: Kinds) -> None:
    lines: list[str] = []
    run(kinds, on_progress=lines.append)
    assert [line.split("]")[0] for line in lines] == [f"[{i}/15" for i in range(1, 16)]
    assert (lines[0], lines[-1]) == ("[1/15] starting plain", "[15/15] round 3 of 3: third")
