"""``benchmarks/uneven.py``: sleeping envs, the contenders that step them, and the printed table."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uneven
from bench_fakes import entry, result, session
from gymnasium.vector.utils import batch_space
from harness.options import parse_options
from harness.session import Session
from harness.sleepers import SLEEPS, SleepingEnv, Sleeps, lognormal_quantiles
from peers import UNEVEN_PEERS
from peers.remuda_partial import RemudaPartial
from uneven import CASES, NUM_ENVS, Case

from remuda._bench.contenders import PlainLoop, Plan
from remuda._bench.rounds import race

RESETS = SLEEPS["resets"]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces `time.sleep` and collects the durations."""
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    return sleeps


def test_a_lognormal_distribution_has_the_mean_asked_for() -> None:
    values = lognormal_quantiles(99, 2e-3)
    assert sum(values) / 99 == pytest.approx(2e-3)
    assert sorted(values) == list(values)
    assert values[49] < 2e-3 < 2 * values[49]  # the median is below the mean


def test_each_seed_shuffles_the_same_hundred_step_times(slept: list[float]) -> None:
    env, orders = SleepingEnv(SLEEPS["lognormal"]), []
    for seed in (3, 4, 3):
        env.reset(seed=seed)
        slept.clear()
        for _ in range(250):
            env.step(0)
        orders.append(list(slept))
        assert slept[:100] != slept[100:200]
        assert sorted(slept[:100]) == sorted(slept[100:200]) == sorted(SLEEPS["lognormal"].steps)
    assert orders[0] == orders[2] != orders[1]


def episode(env: SleepingEnv) -> int:
    steps = 1
    while not env.step(0)[3]:
        steps += 1
    return steps


def test_only_an_episode_after_a_seed_is_shorter_and_its_reset_longer(slept: list[float]) -> None:
    env = SleepingEnv(RESETS)
    for _ in range(2):
        env.reset(seed=5)
        env.reset()  # some peers pass the seed in an extra reset
        assert slept[0] == slept[1] > RESETS.reset
        assert episode(env) < 100
        slept.clear()
        env.reset()
        assert episode(env) == 100
        assert slept == [RESETS.reset, *[1e-3] * 100]
        slept.clear()


def test_episodes_of_a_pool_end_one_by_one(slept: list[float]) -> None:
    ends = []
    for seed in range(NUM_ENVS):
        env = SleepingEnv(RESETS)
        slept.clear()
        env.reset(seed=seed)
        episode(env)
        ends.append(sum(slept) % 0.3)
    ends = sorted(ends)
    gaps = [later - earlier for earlier, later in pairwise([*ends, ends[0] + 0.3])]
    assert min(gaps) > 0.3 / NUM_ENVS / 2
    assert max(gaps) < 0.3 / NUM_ENVS * 2


def test_a_reset_gives_no_reward_and_a_step_one(slept: list[float]) -> None:
    loop = PlainLoop(Plan(RESETS.workload(), NUM_ENVS, NUM_ENVS))
    loop.reset(seed=0)
    actions = loop.prepare(batch_space(SleepingEnv.action_space, NUM_ENVS), np.zeros(NUM_ENVS, np.int64))
    assert len(actions) == 101
    for _ in range(3):
        assert loop.step(actions) == 100
    in_stride = slept[-101:]
    assert sum(in_stride) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("case", "ideal", "bound"),
    [
        (Case("lognormal", 0.95, min_envs=4), 16 / 2.18e-3, 0.90625),
        (Case("lognormal", 0.95), 16 / 2.18e-3, 1.0),
        (Case("resets", 0.95), 16 * 100 / 0.3, 1.0),
        (Case("resets", 0.85, spares=16), 32 * 100 / 0.3, 1.0),
    ],
)
def test_each_case_has_its_ideal_and_bound(case: Case, ideal: float, bound: float) -> None:
    assert case in CASES
    assert case.ideal == pytest.approx(ideal)
    assert case.bound == pytest.approx(bound)


def test_the_plan_of_a_case_has_its_settings() -> None:
    without_end, with_spares = CASES[0].plan(), CASES[3].plan()
    settings = [(p.min_envs, p.background_resets, p.spares, p.loops) for p in (without_end, with_spares)]
    assert settings == [(4, False, 0, 16), (1, True, 16, 32)]
    assert without_end.lead_in == 0.0
    assert with_spares.lead_in == 0.4  # every env has begun its first episode by then
    assert {(p.num_envs, p.num_workers) for p in (without_end, with_spares)} == {(16, 16)}


TINY = Sleeps("tiny", (0.0, 1e-4))
SHORT = Sleeps("short", (0.0,), reset=1e-4, episode_steps=3)


@pytest.mark.parametrize("min_envs", [1, 2, 4])
def test_installed_contenders_step_sleeping_envs(min_envs: int) -> None:
    kinds, _ = uneven.line_up(UNEVEN_PEERS)
    # forked, because the peers' imports take long
    plan = Plan(TINY.workload(), 4, 4, min_envs=min_envs, loops=4, start_method="fork")
    found = race(kinds, plan, seconds=0.05, rounds=2)
    assert {entry.name: entry.error for entry in found.entries} == dict.fromkeys([kind.name for kind in kinds])
    assert all(turn.env_steps >= min_envs for entry in found.entries for turn in entry.turns)


@pytest.mark.parametrize("spares", [0, 4])
def test_background_resets_do_not_count_as_steps(spares: int) -> None:
    plan = Plan(SHORT.workload(), 4, 4, min_envs=1, background_resets=True, spares=spares, lead_in=2 * SHORT.reset)
    with closing(RemudaPartial(plan)) as contender:
        contender.reset(seed=0)
        for seed in (0, 1):
            contender.begin_turn(seed)
            received = [contender.step(np.zeros(4, np.int64)) for _ in range(200)]
            rewards = np.concatenate(received)
            assert set(rewards) == {0.0, 1.0}
            assert np.count_nonzero(rewards) > np.count_nonzero(rewards == 0.0)  # each reset follows three steps


def test_a_case_is_measured_as_its_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SLEEPS, "lognormal", TINY)
    found = uneven.measure(Case("lognormal", 0.95, min_envs=4), [PlainLoop, RemudaPartial], session(seconds=0.1))
    assert found.loops == found.num_envs == NUM_ENVS
    assert [entry.error for entry in found.entries] == [None, None]
    assert len(found.remuda.turns) == 1


class FakePool:
    """Returns the test's batches and records commands."""

    def __init__(self, env_fns: Sequence[object], **options: Any) -> None:
        self.env_fns, self.options = env_fns, options
        self.log: list[Any] = []
        self.batches: list[Namespace] = []

    def discard(self) -> None:
        self.log.append("discard")

    def send_reset(self, seed: int) -> None:
        self.log.append(("reset", seed))

    def recv(self, min_envs: int) -> Namespace:
        assert min_envs == 2
        return self.batches.pop(0)

    def send(self, actions: Any, env_ids: Any) -> None:
        self.log.append((actions.tolist(), env_ids.tolist()))


def test_an_env_that_is_resetting_receives_no_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemudaPartial, "load", classmethod(lambda cls: Namespace(Pool=FakePool)))
    contender = RemudaPartial(Plan(RESETS.workload(), 4, 4, min_envs=2, background_resets=True, spares=3))
    pool = contender._pool
    assert (len(pool.env_fns), pool.options["autoreset"], pool.options["spares"]) == (4 + 3, "background", 3)

    contender.begin_turn(seed=7)
    pool.batches = [arrivals([2, 0, 3], terminated=[1]), arrivals([2, 3], terminated=[0], truncated=[1])]
    for batch in list(pool.batches):
        assert contender.step(np.array([10, 11, 12, 13])) is batch.reward
    assert pool.log == ["discard", ("reset", 7), ([12, 13], [2, 3])]


def arrivals(env_ids: list[int], terminated: Sequence[int] = (), truncated: Sequence[int] = ()) -> Namespace:
    """Returns a batch. The episodes of the rows in `terminated` and `truncated` have ended."""
    rows = np.arange(len(env_ids))
    return Namespace(
        env_ids=np.array(env_ids),
        obs=None,
        reward=np.ones(len(env_ids)),
        terminated=np.isin(rows, terminated),
        truncated=np.isin(rows, truncated),
    )


def test_contenders_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UNEVEN_PEERS["sb3"], "module", "no_such_module.at_all")
    kinds, left_out = uneven.line_up(["sb3", "gymnasium"])
    assert [kind.name for kind in kinds] == ["plain loop", "remuda", "gymnasium"]
    assert left_out == ["peer 'sb3' is not installed: pip install \"stable-baselines3\""]


IDEAL = CASES[1].ideal
FOUND = replace(
    result(
        entry("plain loop", [0.5 * IDEAL / 16] * 3),
        entry("remuda", [0.4 * IDEAL] * 3),
        entry("gymnasium", [0.2 * IDEAL] * 3),
        entry("sb3", error="ValueError: no"),
    ),
    env="sleepy",
    num_envs=16,
    loops=16,
)


def test_the_table_has_a_row_for_every_case() -> None:
    lines = list(uneven.markdown([(case, FOUND) for case in CASES[:2]]))
    assert lines[0] == "| workload | recv | spares | goal | at best | reached |  | remuda | gymnasium | sb3 |"
    figures = "0.4 | **falls short** | 0.40 (0.80) | 0.20 (0.40) | failed |"
    assert lines[2] == f"| sleepy | >= 4 | 0 | 0.95 | 0.906 | {figures}"
    assert lines[3] == f"| sleepy | >= 1 | 0 | 0.95 | 1 | {figures}"
    assert lines[-1] == "\nsb3 failed on sleepy, 16 envs: `ValueError: no`"


def test_json_has_both_ideals() -> None:
    figures = uneven.to_json(CASES[1], FOUND)
    assert figures["asked_steps_per_second"] == pytest.approx(IDEAL)
    assert figures["ideal_steps_per_second"] == pytest.approx(IDEAL / 2, rel=1e-2)
    assert (figures["min_envs"], figures["spares"]) == (1, 0)


def parse(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Namespace:
    monkeypatch.setattr(sys, "argv", ["uneven.py", *arguments])
    return parse_options(
        "", workloads=["a", "b"], peers=["gymnasium", "sb3"], against=["sb3"], seconds=15.0, quick=3.0, rounds=5
    )


def test_options_have_defaults_and_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse(monkeypatch)
    assert (found.only, found.against, found.seconds, found.rounds) == (["a", "b"], ["sb3"], 15.0, 5)
    found = parse(monkeypatch, "--quick", "--only", "b", "--against", "gymnasium,sb3", "--rounds", "2")
    assert (found.only, found.against, found.seconds, found.rounds) == (["b"], ["gymnasium", "sb3"], 3.0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "a,c"), "expected --only to name a, b, got c"),
        (("--against", "gym"), "expected --against to name gymnasium, sb3, got gym"),
    ],
)
def test_the_error_for_an_unknown_name_lists_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], message: str
) -> None:
    with pytest.raises(SystemExit):
        parse(monkeypatch, *arguments)
    assert message in capsys.readouterr().err


def test_results_go_where_the_options_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sections: list[tuple[str, str]] = []
    monkeypatch.setattr("harness.session.write_section", lambda *section: sections.append(section))
    Session(Namespace(json=tmp_path / "f.json", readme=True, any_round=False)).publish("uneven", ["a", "b"], [1])
    assert capsys.readouterr().out == "a\nb\n"
    assert (tmp_path / "f.json").read_text() == "[\n  1\n]\n"
    assert sections == [("uneven", "a\nb")]
