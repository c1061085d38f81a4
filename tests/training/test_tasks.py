"""remuda.evaluate_tasks plays each unit as a loop over one env would, for any number of envs, faults and interruptions."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import gymnasium
import numpy as np
import pytest
import torch
from task_envs import Flat, Mortal, Walk, kills

import remuda
from remuda import FaultPolicy, Task, TaskResults, evaluate_tasks

EPISODES = 13
INIT_STATES = [0.5, -2.0, -7.0]
AT_ONCE = FaultPolicy(backoff=0.0)


def tasks_of(*makes: Any) -> list[Task]:
    """Returns tasks that differ in their envs, and in all that a task can have."""
    return [
        Task("plain", makes[0]),
        Task("from a state", makes[1 % len(makes)], init_states=INIT_STATES, instruction="walk"),
        Task("short", makes[2 % len(makes)], max_steps=3, success=lambda info: "is_success" in info),
    ]


WALKS = tasks_of(Walk, partial(Walk, 2.0), partial(Walk, -1.0))


class Recurrent:
    """A policy with a state and noise of its own for each episode."""

    calls = 0

    def __init__(self, interrupt_at: int | None = None) -> None:
        self._interrupt_at = interrupt_at

    def initial_state(self, count: int) -> Any:
        return np.zeros((count, 2))

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        self.calls += 1
        if self.calls == self._interrupt_at:
            raise KeyboardInterrupt
        noise = np.array([unit.rng.normal(size=2) for unit in context.units])
        context.state = 0.5 * context.state + noise + 0.01 * obs[:, :2]
        return context.state


def play_alone(task: Task, episode: int, policy: Any, seed: int = 3) -> dict[str, Any]:
    """Plays an episode in a plain loop, and returns what its row must have."""
    env = task.make()
    number = int(np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1)[0]) & 0x7FFFFFFF
    stream = np.random.SeedSequence(seed, spawn_key=(episode, crc32(task.name.encode())))
    init_state = None if task.init_states is None else episode % len(task.init_states)
    unit = remuda.Unit(task.name, episode, number, init_state, task.instruction, np.random.default_rng(stream))
    context = remuda.PolicyContext(np.zeros(1, np.int64), np.ones(1, bool), unit.rng, units=(unit,))
    context.state = policy.initial_state(1)
    options = None if init_state is None else {"init_state": INIT_STATES[init_state]}
    (obs, info), total, steps, over, terminated = env.reset(seed=number, options=options), 0.0, 0, False, False
    while not over:
        obs, reward, terminated, truncated, info = env.step(policy.act(obs[None], context)[0])
        total, steps = total + reward, steps + 1
        over = terminated or truncated or steps == task.max_steps
    success = task.success(info) if callable(task.success) else info[task.success]
    row = {"task": task.name, "episode": episode, "seed": number, "init_state": init_state, "status": "done"}
    return row | {"success": success, "return": total, "length": steps, "terminated": terminated}


def lines(file: Path) -> list[str]:
    """Returns the sorted lines of a file without what faults change."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(json.dumps({key: row[key] for key in row if key not in ("attempts", "faults")}) for row in rows)


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    return [play_alone(task, episode, Recurrent()) for task in WALKS for episode in range(EPISODES)]


def without_faults(results: TaskResults) -> list[dict[str, Any]]:
    return [{key: row[key] for key in row if key not in ("attempts", "faults")} for row in results.rows]


@pytest.mark.parametrize("num_envs", [1, 3, 5])
def test_rows_equal_those_of_a_plain_loop(num_envs: int, expected: Any, tmp_path: Path) -> None:
    results = evaluate_tasks(
        Recurrent(), WALKS, episodes=EPISODES, num_envs=num_envs, seed=3, results=tmp_path / "a.jsonl", min_envs=num_envs
    )
    assert without_faults(results) == expected
    assert {row["attempts"] for row in results.rows} == {1}
    assert TaskResults.load(tmp_path / "a.jsonl").rows == results.rows
    assert {row["success"] for row in results["plain"].rows} == {True, False}


@pytest.mark.watchdog(600)
def test_kills_and_interruptions_change_nothing(expected: Any, tmp_path: Path) -> None:
    folder, file = tmp_path / "kills", tmp_path / "results.jsonl"
    folder.mkdir()
    deaths = {"build": 41, "reset": 1, "step": 1}  # 3 * 41 + 39 + 38: one episode ends before its second step
    mortal = [partial(Mortal, folder, str(scale), deaths, scale) for scale in (1.0, 2.0, -1.0)]
    for interrupt_at in (10, 20, 30, 40, 50, None):
        policy, played = Recurrent(interrupt_at), partial(evaluate_tasks, episodes=EPISODES, num_envs=3, seed=3)
        run = partial(played, policy, tasks_of(*mortal), results=file, attempts=100, faults=AT_ONCE)
        if interrupt_at is not None:
            with pytest.raises(KeyboardInterrupt):
                run()
        else:
            results = run()
    print(kills(folder))
    assert without_faults(results) == expected
    evaluate_tasks(Recurrent(), tasks_of(*mortal), episodes=EPISODES, num_envs=1, seed=3, results=tmp_path / "1.jsonl")
    assert lines(file) == lines(tmp_path / "1.jsonl")
