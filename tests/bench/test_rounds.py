"""The order of turns, the steps that count, and failing contenders."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from bench_fakes import COUNTING, FakeClock, FakeContender, fakes

from remuda._bench.contenders import Plan
from remuda._bench.results import Result
from remuda._bench.rounds import Progress, race
from remuda._bench.workloads import Workload, WorkloadError
from remuda._system.cores import usable_cores

PLAN = Plan(COUNTING, num_envs=4, num_workers=2)
STEP_SECONDS = {"plain": 1.0, "ours": 0.25, "third": 0.5}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def kinds(clock: FakeClock) -> list[type[FakeContender]]:
    return fakes(clock, STEP_SECONDS)


def run(kinds: list[type[FakeContender]], **options: object) -> Result:
    return race(kinds, PLAN, seconds=30.0, rounds=3, clock=kinds[0].clock, **options)  # type: ignore[arg-type]


def test_a_rate_is_env_steps_over_the_turns_time(kinds: list[type[FakeContender]]) -> None:
    result = run(kinds)
    assert [entry.steps_per_second for entry in result.entries] == [4.0, 16.0, 8.0]
    assert all(len(entry.turns) == 3 for entry in result.entries)
    assert all(turn.seconds == 10.0 for entry in result.entries for turn in entry.turns)


def test_contenders_take_turns_in_every_round(kinds: list[type[FakeContender]]) -> None:
    run(kinds)
    steppers = [name for name, what in kinds[0].log if what == "step"]
    names = list(STEP_SECONDS)
    assert [name for name, _ in groupby(steppers)] == names * 4  # in the warm-up and in three rounds


def test_all_are_built_and_reset_before_any_steps(kinds: list[type[FakeContender]]) -> None:
    run(kinds)
    first = [what for _, what in kinds[0].log][:6]
    assert first == ["build", "reset"] * 3


def test_startup_ends_when_the_first_reset_returned(kinds: list[type[FakeContender]]) -> None:
    assert [entry.startup_seconds for entry in run(kinds).entries] == [2.0, 2.0, 2.0]


def test_the_lead_in_is_stepped_and_not_counted(kinds: list[type[FakeContender]]) -> None:
    result = run(kinds)
    steps = kinds[0].log.count(("ours", "step"))
    counted = sum(turn.env_steps for turn in result.entries[1].turns) // PLAN.num_envs
    warm_up, lead_ins = 2, 3 * 4
    assert steps == counted + warm_up + lead_ins


def test_a_step_longer_than_a_turn_is_taken_once(clock: FakeClock) -> None:
    kinds = fakes(clock, {"plain": 100.0, "ours": 1.0})
    (turn, *_) = run(kinds).entries[0].turns
    assert (turn.env_steps, turn.seconds) == (4, 100.0)


def test_a_lead_in_can_be_longer(kinds: list[type[FakeContender]]) -> None:
    result = race(kinds, replace(PLAN, lead_in=5.0), seconds=30.0, rounds=3, clock=kinds[0].clock)
    counted = sum(turn.env_steps for turn in result.entries[1].turns) // PLAN.num_envs
    warm_up, lead_ins = 2, 3 * 20
    assert kinds[0].log.count(("ours", "step")) == counted + warm_up + lead_ins


def test_every_turn_is_announced_to_its_contender(kinds: list[type[FakeContender]]) -> None:
    run(kinds)
    ours = [what for name, what in kinds[0].log if name == "ours"]
    assert [what for what, _ in groupby(ours)] == ["build", "reset", *["begin turn", "step"] * 4, "close"]


def test_with_reward_is_steps_the_rewards_are_counted(kinds: list[type[FakeContender]]) -> None:
    for kind in kinds:
        kind.rewards = (1.0, 0.0, 1.0)
    plan = replace(PLAN, workload=replace(COUNTING, reward_is_steps=True))
    result = race(kinds, plan, seconds=30.0, rounds=3, clock=kinds[0].clock)
    assert [entry.steps_per_second for entry in result.entries] == [2.0, 8.0, 4.0]


def test_the_ideal_is_a_plain_loop_on_each_core_or_the_given_number(kinds: list[type[FakeContender]]) -> None:
    assert run(kinds).loops == usable_cores()
    assert race(kinds, replace(PLAN, loops=7), seconds=3.0, rounds=1, clock=kinds[0].clock).loops == 7


@pytest.mark.parametrize("phase", ["build", "reset", "begin turn", "step"])
def test_a_contender_that_raises_drops_out_and_the_others_continue(
    kinds: list[type[FakeContender]], phase: str
) -> None:
    kinds[2].fails_at = phase
    plain, ours, third = run(kinds).entries
    assert third.error == "RuntimeError: out of hay"
    assert third.turns == []
    assert len(plain.turns) == len(ours.turns) == 3


def test_an_error_in_closing_is_recorded(kinds: list[type[FakeContender]]) -> None:
    kinds[1].fails_at = "close"
    _, ours, third = run(kinds).entries
    assert ours.error == "RuntimeError: out of hay"
    assert len(ours.turns) == 3
    assert third.error is None


def test_all_are_closed_once(kinds: list[type[FakeContender]]) -> None:
    kinds[2].fails_at = "step"
    run(kinds)
    assert sorted(name for name, what in kinds[0].log if what == "close") == sorted(STEP_SECONDS)


def test_an_interrupt_closes_all(kinds: list[type[FakeContender]]) -> None:
    kinds[1].fails_at, kinds[1].failure = "step", KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(kinds)
    assert sorted(name for name, what in kinds[0].log if what == "close") == sorted(STEP_SECONDS)


def test_an_env_that_cannot_be_built_ends_the_race_before_it_begins(kinds: list[type[FakeContender]]) -> None:
    plan = Plan(Workload("nowhere", lambda: 1 / 0), num_envs=4, num_workers=2)  # type: ignore[arg-type, return-value]
    with pytest.raises(WorkloadError, match="nowhere: ZeroDivisionError: division by zero"):
        race(kinds, plan, seconds=1.0, rounds=1)
    assert kinds[0].log == []


def test_progress_counts_up_to_its_total(kinds: list[type[FakeContender]]) -> None:
    seen: list[Progress] = []
    run(kinds, on_progress=seen.append)
    assert [progress.done for progress in seen] == list(range(seen[0].total))
    assert (seen[0].doing, seen[-1].doing) == ("starting plain", "round 3 of 3: third")
