"""The scripts in ``benchmarks/``: workloads, goals and printed tables."""

from __future__ import annotations

import functools
import sys
from contextlib import closing
from pathlib import Path

import episode_ends
import numpy as np
import pytest
import python_calls
import startup
import throughput
from bench_fakes import entry, result
from harness import envs, tables
from harness.readme import write_section
from startup import Sample
from throughput import Case, Goal

from remuda._bench import registry
from remuda._bench.contenders import Plan
from remuda._bench.rounds import race

FOUND = result(entry("plain loop", [100, 100, 100]), entry("remuda", [150, 150, 150]), entry("gymnasium", [10, 10, 10]))


@pytest.mark.parametrize("name", sorted(envs.WORKLOADS))
def test_every_workload_can_be_stepped(name: str) -> None:
    if why := envs.missing(name):
        pytest.skip(why)
    workload = envs.WORKLOADS[name]()
    kinds = registry.line_up(["gymnasium-sync"])
    found = race(kinds, Plan(workload, num_envs=4, num_workers=2), seconds=0.05, rounds=1)
    assert [found_entry.error for found_entry in found.entries] == [None] * 3


def test_more_time_means_more_iterations() -> None:
    assert 0 < envs.iterations_for(1e-9) < envs.iterations_for(1.0)


def test_the_infos_workload_has_its_info_keys() -> None:
    workload = envs.WORKLOADS["infos"]()
    env = workload.make_env()
    env.reset(seed=0)
    info = env.step(0)[4]
    assert tuple(info) == envs.INFO_KEYS
    assert workload.info_key in info


@pytest.mark.parametrize(
    ("goal", "reached", "verdict"),
    [
        (Goal(0.7), 0.75, "pass"),
        (Goal(0.75), 0.75, "pass"),
        (Goal(0.8), 0.75, "**falls short**"),
        (Goal(10.0, "gymnasium"), 15.0, "pass"),
        (Goal(2.0, "gymnasium", "remuda-per-env"), None, "not measured"),
        (Goal(2.0, "sb3"), None, "not measured"),
    ],
)
def test_a_goal_is_compared_with_the_measured_ratio(goal: Goal, reached: float | None, verdict: str) -> None:
    assert goal.measured(FOUND) == reached
    assert tables.verdict(goal.at_least, reached) == verdict


def test_the_table_has_a_row_for_every_goal_that_was_raced() -> None:
    not_raced = Goal(8.0, "sb3", "remuda-sb3")
    cases = [Case("cartpole", 64, (Goal(0.7), not_raced, Goal(20.0, "gymnasium")))]
    lines = list(throughput.markdown([(cases[0], FOUND)]))
    assert lines[2] == "| CartPole-v1 | 64 | remuda >= 0.7 x the ideal | 0.75 | pass | 0.75 | 0.050 |"
    assert "| remuda >= 20 x gymnasium | 15 | **falls short** |" in lines[3]


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
@pytest.mark.parametrize(("face", "most"), [("remuda.Pool", 1), ("remuda.gymnasium.AsyncVectorEnv", 4)])
def test_a_steady_step_takes_few_python_calls(face: str, most: int) -> None:
    with python_calls.FACES[face]() as step:
        calls = python_calls.steady_calls(step)
    assert len(calls) <= most, calls


def test_startup_goals_compare_time_and_memory() -> None:
    reference = Sample("gymnasium", "fork", 1.0, 5.0)
    assert startup.verdict(Sample("remuda-per-env", "fork", 1.0, 5.0), reference) == "pass"
    assert startup.verdict(Sample("remuda-per-env", "fork", 0.9, 5.1), reference) == "**falls short: larger**"


def test_a_section_of_a_readme_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("above\n<!-- t -->\nold\n<!-- /t -->\nbelow\n")
    for _ in range(2):
        write_section("t", r"new \1", readme)
    assert readme.read_text() == "above\n<!-- t -->\nnew \\1\n<!-- /t -->\nbelow\n"


def test_a_section_that_is_missing_is_an_error(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here")
    with pytest.raises(ValueError, match="expected <!-- t -->"):
        write_section("t", "new", readme)


def test_the_ending_env_reports_statistics_at_the_end_of_episodes() -> None:
    env = episode_ends.EndingEnv(has_statistics=True)
    env.reset()
    results = [env.step(0) for _ in range(episode_ends.EPISODE_STEPS)]
    assert [done for _, _, done, _, _ in results] == [False] * 7 + [True]
    assert [set(info) for *_, info in results] == [set()] * 7 + [{"episode"}]
    assert episode_ends.EndingEnv(has_statistics=False).step(0)[4] == {}


@pytest.mark.parametrize("mode", episode_ends.MODES)
def test_contenders_of_episode_ends_step_in_their_mode(mode: str) -> None:
    for name in episode_ends.line_up(mode):
        env_fns = [functools.partial(episode_ends.EndingEnv, True, tag) for tag in range(2)]
        with closing(episode_ends.CONTENDERS[name](env_fns, mode)) as contender:
            contender.reset()
            for _ in range(2 * episode_ends.EPISODE_STEPS):
                contender.step(np.zeros(2, np.int64))


def test_the_table_of_episode_ends_has_a_row_for_each_cost() -> None:
    costs = [
        episode_ends.Cost("remuda.Pool", "next_step", 1500.0),
        episode_ends.Cost("remuda.sb3", "same_step", 3000.0),
    ]
    rows = list(episode_ends.markdown(costs))[2:]
    assert rows == [
        "| `remuda.Pool` | next_step | <= 2 us | 1,500 | 0.50 us |",
        "| `remuda.sb3` | same_step | <= 4 us | 3,000 | 1.00 us |",
    ]
