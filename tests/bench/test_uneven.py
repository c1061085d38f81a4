"""Sleeping envs, and the contenders that step them."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from bench_fakes import entry, result
from gymnasium.vector.utils import batch_space
from harness import tables
from harness.sleepers import SLEEPS, SleepingEnv, SleepLoop, Sleeps, without_resets
from peers import UNEVEN_PEERS
from peers.remuda_pools import RemudaPartial, UnevenPlan
from uneven import CASES, NUM_ENVS, line_up, markdown

from remuda._bench.contenders import Plan
from remuda._bench.race import race

RESETS = SLEEPS["resets"]
TINY = Sleeps("tiny", (0.0, 1e-4))
SHORT = Sleeps("short", (0.0,), reset=1e-4, episode_steps=3)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces `time.sleep` and collects the durations."""
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    return sleeps


def test_each_seed_shuffles_the_same_hundred_step_times(slept: list[float]) -> None:
    env, orders = SleepingEnv(SLEEPS["lognormal"]), []
    for seed in (3, 4, 3):
        env.reset(seed=seed)
        slept.clear()
        for _ in range(250):
            env.step(0)
        orders.append(list(slept))
        assert sorted(slept[:100]) == sorted(slept[100:200]) == sorted(SLEEPS["lognormal"].steps)
    assert orders[0] == orders[2] != orders[1]


def test_episodes_of_a_pool_end_one_by_one(slept: list[float]) -> None:
    ends = []
    for seed in range(NUM_ENVS):
        env = SleepingEnv(RESETS)
        slept.clear()
        env.reset(seed=seed)
        while not env.step(0)[3]:
            pass
        ends.append(sum(slept) % 0.3)
    ends = sorted(ends)
    gaps = [later - earlier for earlier, later in pairwise([*ends, ends[0] + 0.3])]
    assert min(gaps) > 0.3 / NUM_ENVS / 2
    assert max(gaps) < 0.3 / NUM_ENVS * 2


def test_the_loop_takes_whole_periods_and_counts_no_resets(slept: list[float]) -> None:
    loop = SleepLoop(Plan(RESETS.workload(), NUM_ENVS, NUM_ENVS))
    loop.reset(seed=0)
    actions = loop.prepare(batch_space(SleepingEnv.action_space, NUM_ENVS), np.zeros(NUM_ENVS, np.int64))
    assert len(actions) == 101
    assert [loop.step(actions) for _ in range(3)] == [100] * 3
    assert sum(slept[-101:]) == pytest.approx(0.3)


def test_each_case_has_its_ideal_and_bound() -> None:
    assert [case.ideal for case in CASES] == pytest.approx([16 / 2.18e-3] * 2 + [16 * 100 / 0.3, 32 * 100 / 0.3])
    assert [case.bound for case in CASES] == pytest.approx([0.90625, 1.0, 1.0, 1.0])


def test_installed_contenders_step_sleeping_envs() -> None:
    kinds, _ = line_up(UNEVEN_PEERS)
    # forked, because the peers' imports take long
    plan = UnevenPlan(TINY.workload(), 4, 4, min_envs=2, start_method="fork")
    found = race(kinds, plan, seconds=0.05, rounds=2)
    assert {entry.name: entry.error for entry in found.entries} == dict.fromkeys([kind.name for kind in kinds])
    assert all(turn.env_steps >= 2 for entry in found.entries for turn in entry.turns)


@pytest.mark.parametrize("spares", [0, 4])
def test_background_resets_do_not_count_as_steps(spares: int) -> None:
    plan = UnevenPlan(SHORT.workload(), 4, 4, background_resets=True, spares=spares)
    with closing(without_resets(RemudaPartial)(plan)) as contender:
        contender.reset(seed=0)
        for _ in range(2):
            contender.begin_turn()
            received = [(contender.step(np.zeros(4, np.int64)), len(contender.rewards)) for _ in range(200)]
            steps, results = np.sum(received, axis=0)
            assert results / 2 < steps < results  # each reset follows three steps


def test_the_table_has_a_row_for_every_case() -> None:
    ideal = CASES[1].ideal
    rates = {"plain loop": 0.5 * ideal / 16, "remuda": 0.4 * ideal, "gymnasium": 0.2 * ideal}
    found = result(*(entry(name, [rate] * 3) for name, rate in rates.items()), entry("sb3", error="ValueError: no"))
    lines = tables.markdown(markdown([(case, found) for case in CASES[:2]])).splitlines()
    assert lines[0] == "| workload | recv | spares | goal | at best | reached |  | remuda | gymnasium | sb3 |"
    figures = "0.4 | **falls short** | 0.40 (0.80) | 0.20 (0.40) | failed |"
    assert lines[2] == f"| counting | >= 4 | 0 | 0.95 | 0.906 | {figures}"
    assert lines[3] == f"| counting | >= 1 | 0 | 0.95 | 1 | {figures}"
    assert lines[-1] == "sb3 failed on counting, 64 envs: `ValueError: no`"
