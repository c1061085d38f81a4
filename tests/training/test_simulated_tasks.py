"""remuda.evaluate_tasks plays gym-pusht and MetaWorld like a loop over one env, with several envs and with a kill."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import kill_myself, once

pytest.importorskip("gym_pusht", reason="both simulators are in the environment of make tasks-test")

from remuda import Task, TaskResults, evaluate_tasks

EPISODES = 3


class DiesOnce(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Kills its worker in the fifth step of all envs with this `mark`."""

    def __init__(self, env: Any, mark: Path) -> None:
        super().__init__(env)
        self._die = once(mark, kill_myself, skip=4)

    def step(self, action: Any) -> Any:
        self._die()
        return super().step(action)


def play_alone(task: Task, act: Any) -> list[tuple[Any, ...]]:
    """Plays the episodes in one env, and returns the return, length and success of each."""
    env, found = task.make(), []
    for episode in range(EPISODES):
        seed = int(np.random.SeedSequence(0, spawn_key=(episode,)).generate_state(1)[0]) & 0x7FFFFFFF
        options = None if task.init_states is None else {"init_state": task.init_states[episode]}
        (obs, _), total, steps, over = env.reset(seed=seed, options=options), 0.0, 0, False
        while not over:
            obs, reward, terminated, truncated, info = env.step(act(obs[None])[0])
            total, steps = total + float(reward), steps + 1
            over = terminated or truncated or steps == task.max_steps
        found.append((total, steps, bool(info[task.success])))
    env.close()
    return found


def outcomes(results: TaskResults) -> list[tuple[Any, ...]]:
    return [(row["return"], row["length"], row["success"]) for row in results.rows]


def without_and_with_a_kill(tasks: list[Task], act: Any, mark: Path, worker_env: Any = None) -> None:
    expected = [outcome for task in tasks for outcome in play_alone(task, act)]
    first, *others = tasks
    mortal = replace(first, make=lambda: DiesOnce(first.make(), mark))
    run = partial(evaluate_tasks, act, episodes=EPISODES, num_envs=2, worker_env=worker_env)
    assert outcomes(run(tasks)) == expected
    again = run([mortal, *others])
    assert outcomes(again) == expected
    assert sum(row["attempts"] for row in again.rows) == len(expected) + 1


# -- gym-pusht -------------------------------------------------------------------------------------------


def make_pusht() -> Any:
    import gym_pusht  # noqa: F401 - the import registers the id

    return gymnasium.make("gym_pusht/PushT-v0", obs_type="state", disable_env_checker=True)


def push(obs: Any) -> Any:
    """Moves the agent to the block and beyond."""
    return np.clip(1.5 * obs[:, 2:4] - 0.5 * obs[:, :2], 0, 512).astype(np.float32)


@pytest.mark.filterwarnings("ignore")  # pygame and pymunk use what is deprecated
def test_pusht(tmp_path: Path) -> None:
    tasks = [Task("push", make_pusht, max_steps=80), Task("push briefly", make_pusht, max_steps=30)]
    without_and_with_a_kill(tasks, push, tmp_path / "killed")


# -- MetaWorld -------------------------------------------------------------------------------------------


class FromTask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins with a task of MetaWorld, and ends with a success."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        self.unwrapped.set_task(options["init_state"])  # type: ignore[attr-defined]
        return self.env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or info["success"] == 1, truncated, info


def make_metaworld(name: str) -> Any:
    import metaworld

    return FromTask(metaworld.ALL_V3_ENVIRONMENTS[name](render_mode="rgb_array"))


def reach(obs: Any) -> Any:
    """Moves the hand towards the goal, which MetaWorld's tasks hide, and the object."""
    towards = 10 * (obs[:, 4:7] - obs[:, :3])
    return np.concatenate([np.clip(towards, -1, 1), np.zeros((len(obs), 1))], 1).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
def test_metaworld(tmp_path: Path) -> None:
    import metaworld

    tasks = []
    for name in ("reach-v3", "push-v3"):
        states = metaworld.MT1(name, seed=0).train_tasks[:EPISODES]
        make = partial(make_metaworld, name)
        tasks.append(Task(name, make, max_steps=60, init_states=states, success="success"))
    without_and_with_a_kill(tasks, reach, tmp_path / "killed")
