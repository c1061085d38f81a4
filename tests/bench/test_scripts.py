"""The scripts in ``benchmarks/``: each runs once with tiny sizes, and yields the table that it publishes."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import auto
import collect
import episode_ends
import fetched
import free_threaded
import healing
import numpy as np
import pytest
import python_calls
import recovery
import rollouts
import scaling
import scaling_model
import startup
import tensors
import throughput
import torchrl_pools
import train
import uneven
import waiting
from bench_fakes import COUNTING, entry, result, session
from fetched import Source
from harness import envs, tables
from harness.sleepers import Sleeps, without_resets
from peers import PEERS, available
from peers.remuda_pools import RemudaPartial, UnevenPlan
from throughput import Case, Goal

from remuda._bench.results import Result

if sys.platform != "linux":
    pytest.skip("the scripts start worker processes", allow_module_level=True)

TINY = session(torch_threads=1, num_workers=2, most=2)
FOUND = result(entry("plain loop", [100, 100, 100]), entry("remuda", [150, 150, 150]), entry("gymnasium", [10, 10, 10]))


def check(found: Result, names: Iterable[str]) -> None:
    """Asserts that a race had these contenders, and that none has failed."""
    assert [(one.name, one.error) for one in found.entries] == [(name, None) for name in names]


@pytest.mark.parametrize("name", ["dict", "infos", "mujoco"])
def test_throughput_steps_its_workloads(name: str) -> None:
    if why := envs.missing(name):
        pytest.skip(why)
    case, names = Case(name, 4, (Goal(0.7),)), ["gymnasium-sync"]
    found = throughput.measure(case, session(against=names))
    check(found, ["plain loop", "remuda", *names])
    assert f"| {found.env} | 4 | remuda >= 0.7 x the ideal |" in tables.markdown(throughput.markdown([(case, found)]))


def test_a_goal_is_compared_with_the_measured_ratio() -> None:
    goals = [Goal(0.75), Goal(0.8), Goal(10.0, "gymnasium"), Goal(2.0, "sb3")]
    reached = [goal.measured(FOUND) for goal in goals]
    assert reached == [0.75, 0.75, 15.0, None]
    verdicts = [tables.verdict(goal.at_least, ratio) for goal, ratio in zip(goals, reached, strict=True)]
    assert verdicts == ["pass", "**falls short**", "pass", "not measured"]


def test_auto_races_all_contenders_of_a_framework() -> None:
    case = auto.Case("counting", COUNTING, 2)
    found = auto.Race(case, "gymnasium", "none", auto.measure(case, "gymnasium", "none", TINY))
    check(found.result, auto.FAMILIES["gymnasium"].values())
    assert auto.row(found)[::11] == ["counting", "stepped by the caller"]


def test_collect_compares_with_the_lockstep_bound() -> None:
    case, names = collect.Case("cartpole", 4, "net"), ["gymnasium-sync", "remuda-gymnasium-split"]
    found = collect.measure(case, session(torch_threads=1, against=names))
    check(found, ["plain loop", "remuda", "policy alone", *names])
    assert "| CartPole-v1 | 4 | net |" in tables.markdown(collect.markdown([(case, found)]))
    assert all(ratio > 0 for ratio in collect.to_json(case, found)["of_lockstep_bound"].values())


@pytest.mark.parametrize(("trainer", "names"), [("own", ["gymnasium-sync"]), ("sb3", ["sb3-dummy", "gymnasium-sync"])])
def test_train_measures_the_time_of_learning(trainer: str, names: list[str]) -> None:
    settings = train.ppo.Settings(num_steps=4, num_epochs=1, num_minibatches=2)
    case = train.Case("cartpole", 2, trainer, settings)
    found = train.measure(case, envs.WORKLOADS["cartpole"](), available(names)[0], TINY)
    check(found.result, ["plain loop", "remuda", *names, "ideal-loops"])
    assert all(turn.env_steps == turn.batches * 4 * 2 for turn in found.result.remuda.turns)
    assert all(0 < share < 1 for share in found.learning_shares.values())
    assert "failed" not in tables.markdown(train.markdown([found]))
    assert set(train.to_json(found)["training"]) == {"remuda", *names}


def test_scaling_measures_numbers_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "NUM_ENVS", 4)
    found = scaling.measure(COUNTING, TINY)
    assert sorted(found) == [1, 2]
    check(found[2], ["plain loop", "remuda", "ideal-loops", "several parents"])
    taken = [scaling.sample(COUNTING, *size, TINY) for size in ((2, 1), (4, 2))]
    text = tables.markdown(scaling.markdown([found], taken, scaling_model.Parent(4.0, 0.05, 0.6)))
    assert "The parent: 4.00 us a batch + 0.050 us an env + 0.60 us a worker." in text


def test_torchrls_workload_is_measured() -> None:
    found = torchrl_pools.measure("free", [PEERS["remuda-gymnasium"]], TINY)
    check(found, ["plain loop", "remuda", "remuda-gymnasium"])
    assert f"| {found.env} | 8 |" in tables.markdown(torchrl_pools.markdown({"free": found}))


def test_startup_measures_time_and_memory() -> None:
    arguments = argparse.Namespace(contender="remuda-1-per-env", start_method="fork", env="CartPole-v1", num_envs=2)
    found = startup.measure_here(arguments)
    assert found.startup_seconds > 0
    assert 1 < found.worker_mb < 1000
    verdict = startup.verdict(found, startup.Sample("gymnasium", "fork", 1e6, 0.0))
    assert verdict == "**falls short: larger**"


def test_free_threaded_races_threads_and_processes() -> None:
    found = free_threaded.race(free_threaded.Case("2 CartPoles", 2, free_threaded.cartpole), 0.01, TINY)
    assert list(found) == ["plain loop", *free_threaded.POOLS]
    assert all(rate > 0 for (rate,) in found.values())


def test_healing_measures_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healing, "UPDATE", 0)
    for accident in (None, healing.fail):
        assert len(healing.measure(accident)) == 2


def test_recovery_measures_a_kill() -> None:
    (found,) = recovery.measure("fork", num_envs=2, kills=1)
    assert found.stepping > (found.reported or 0.0) >= 0.0


def test_episode_ends_has_statistics_at_the_end_of_episodes() -> None:
    env_fns = [lambda: episode_ends.EndingEnv(has_statistics=True)] * 2
    with closing(episode_ends.make_pool(env_fns, "next_step")) as pool:
        pool.reset()
        infos = [pool.step([0, 0]).infos[0] for _ in range(episode_ends.EPISODE_STEPS)]
    assert ["episode" in info for info in infos] == [False] * 7 + [True]


def test_rollouts_fills_and_takes_a_minibatch() -> None:
    task = rollouts.Task(argparse.Namespace(steps=2, num_envs=128, num_workers=1))
    with rollouts.rollout(task) as fill:
        assert fill().shape == (rollouts.MINIBATCH, 84, 84, 4)


@pytest.mark.parametrize(("section", "row"), [("driver", "| 8 envs, `step` |"), ("share", "shared")])
def test_tensors_prints_its_sections(section: str, row: str) -> None:
    lines = tables.markdown(tensors.markdown(session(0.0, only=[section], num_workers=2))).splitlines()
    assert any(row in line for line in lines)


def test_waiting_subtracts_the_time_of_the_thought() -> None:
    case = waiting.Case(8, "elsewhere", 2000, busy=0)
    with waiting.pools(4, 2) as steps:
        found = waiting.measure(case, steps, waiting.thought(case, 1.0), session(0.1, rounds=1))
    assert all(thought >= 2000 for thought in found.thought_us)
    assert list(found.step_us) == list(waiting.RULES)
    costs = [waiting.Cost(case.without_thought, [0.0], {rule: [20.0] for rule in waiting.RULES})]
    costs.append(replace(costs[0], case=case, step_us={rule: [25.0] for rule in waiting.RULES}))
    found, _ = waiting.markdown(costs, argparse.Namespace(workers=2, rounds=1, seconds=1.0))
    row = "| 8 | 0 | elsewhere | 2000 | <= 1.3 x | pass | 25 (1.25) | 25 (1.25) | 25 (1.25) |"
    assert str(found).splitlines()[-1] == row


@pytest.mark.parametrize(("face", "most"), [("remuda.Pool", 1), ("remuda.gymnasium.AsyncVectorEnv", 4)])
def test_a_steady_step_takes_few_python_calls(face: str, most: int) -> None:
    with python_calls.FACES[face]() as step:
        calls = python_calls.steady_calls(step)
    assert len(calls) <= most, calls


# -- sources of other projects' benchmarks ---------------------------------------------------------------


def test_a_source_is_downloaded_once_or_given_with_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is "downloaded" from a local file."""
    there, given = tmp_path / "pinned.py", tmp_path / "mine.py"
    there.write_text("x = 1")
    given.write_text("x = 2")
    monkeypatch.setattr(fetched, "BUILD", tmp_path / "build")
    monkeypatch.setattr(Source, "url", there.as_uri())
    found = Source("some/repository", "c0ffee", "folder/pinned.py", hashlib.sha256(b"x = 1").hexdigest())
    path = found.fetch(None)
    there.unlink()
    assert found.fetch(None) == path == tmp_path / "build" / "c0ffee" / "pinned.py"
    assert path.read_text() == "x = 1"
    with pytest.raises(SystemExit, match=r"mine.py: expected file://.*pinned.py with sha256 .*, got "):
        found.fetch(given)
    assert replace(found, sha256=hashlib.sha256(b"x = 2").hexdigest()).fetch(given).read_text() == "x = 2"
    path.unlink()
    with pytest.raises(SystemExit, match="Download it elsewhere, and pass it with --source FILE"):
        found.fetch(None)


# -- sleeping envs ---------------------------------------------------------------------------------------

SHORT = Sleeps("short", (0.0,), reset=1e-4, episode_steps=3)


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
    ideal = uneven.CASES[1].ideal
    rates = {"plain loop": 0.5 * ideal / 16, "remuda": 0.4 * ideal, "gymnasium": 0.2 * ideal}
    found = result(*(entry(name, [rate] * 3) for name, rate in rates.items()), entry("sb3", error="ValueError: no"))
    lines = tables.markdown(uneven.markdown([(case, found) for case in uneven.CASES[:2]])).splitlines()
    assert lines[0] == "| workload | recv | spares | goal | at best | reached |  | remuda | gymnasium | sb3 |"
    figures = "0.4 | **falls short** | 0.40 (0.80) | 0.20 (0.40) | failed |"
    assert lines[2] == f"| counting | >= 4 | 0 | 0.95 | 0.906 | {figures}"
    assert lines[3] == f"| counting | >= 1 | 0 | 0.95 | 1 | {figures}"
    assert lines[-1] == "sb3 failed on counting, 64 envs: `ValueError: no`"
