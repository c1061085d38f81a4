"""Columns of `extras` replace calls to the envs, above all for the masks of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pool_envs import Diary, assert_same
from stable_baselines3.common.vec_env import VecMonitor

from remuda import StepColumn
from remuda.sb3 import SubprocVecEnv


class MaskedEnv(gymnasium.Env[Any, Any]):
    """Walks along a line. Moves off its ends, or onto a field that each reset draws, are invalid."""

    def __init__(self, length: int = 7) -> None:
        self.observation_space = spaces.Box(-1, length, (2,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.length, self.place, self.hole, self.steps = length, 0, -1, 0
        self.strict = True

    def _observe(self) -> Any:
        return np.array([self.place, self.hole], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps, self.hole = 0, 0, int(self.np_random.integers(2, self.length - 1))
        return self._observe(), {}

    def action_masks(self) -> Any:
        targets = self.place + np.array([-2, -1, 1, 2])
        return (targets >= 0) & (targets < self.length) & (targets != self.hole)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        target = self.place + (-2, -1, 1, 2)[int(action)]
        if self.strict and not (0 <= target < self.length and target != self.hole):
            raise ValueError(f"no way to {target}")
        self.place, self.steps = target, self.steps + 1
        return self._observe(), float(target), target == self.length - 1, self.steps == 20, {}


def masks_of(env: Any) -> Any:
    return env.action_masks()


def make(num_envs: int = 3, **options: Any) -> SubprocVecEnv:
    return SubprocVecEnv([MaskedEnv] * num_envs, num_workers=1, **options)


class Masks:
    """The function of a column of masks, which notes each computation in a file."""

    def __init__(self, directory: Path) -> None:
        self.diary = Diary(directory / "computed")

    def __call__(self, env: Any) -> Any:
        self.diary.note("computed")
        return masks_of(env)

    def computed_in(self, act: Callable[[], Any]) -> int:
        """Returns how often the workers compute masks in an act of the caller."""
        before = len(self.diary.lines())
        act()
        return len(self.diary.lines()) - before


@pytest.fixture
def masks(tmp_path: Path) -> Masks:
    return Masks(tmp_path)


def last_valid(masks: Any) -> Any:
    """Returns the last valid action of each env."""
    return np.array([int(np.flatnonzero(mask)[-1]) for mask in masks])


def drive(envs: Any, steps: int) -> list[Any]:
    """Takes the last valid action in each step, and returns all observations, masks and results."""
    envs.seed(0)
    history = [envs.reset()]
    for _ in range(steps):
        masks = envs.env_method("action_masks")
        history += [masks, envs.step(last_valid(masks))]
    return history


def test_a_step_column_is_in_the_extras_and_answers_no_call() -> None:
    own = StepColumn(lambda env: env.unwrapped.steps, (), np.int64)
    with closing(make(extras={"steps": own})) as envs:
        envs.set_attr("strict", False)
        envs.reset()
        for i in range(7):
            _, _, dones, _ = envs.step(np.array([3, 3, 3]))  # the third such step ends the episode
            assert envs.extras["steps"].tolist() == [i % 3 + 1] * 3
            assert envs.get_attr("steps") == [0 if done else i % 3 + 1 for done in dones]


@pytest.mark.parametrize("name", ["action_masks", "action_mask"])
def test_masks_are_those_of_the_columns_which_each_step_computes_once(name: str, masks: Masks) -> None:
    def read() -> None:
        assert_same(drive(envs, 30), drive(envs_without_columns, 30))
        assert envs.has_attr("action_masks")
        assert_same(envs.extras[name], np.array(envs.env_method("action_masks")))
        assert_same(envs.get_attr(name), list(envs.extras[name]))
        assert_same(envs.env_method("action_masks", indices=[-1, 0, 0]), [envs.extras[name][i] for i in (2, 0, 0)])
        assert_same(envs.env_method("action_masks", indices=1), [envs.extras[name][1]])
        envs.env_method("action_masks")[0][:] = False
        assert envs.env_method("action_masks")[0].any()  # it was a copy of the column

    with closing(make(extras={name: masks})) as envs, closing(make()) as envs_without_columns:
        assert masks.computed_in(read) == 3 * 31  # in the reset and in each step


def by_rollout(envs: SubprocVecEnv) -> None:
    for step in envs.rollout(6):
        assert_same(np.array(envs.env_method("action_masks")), step.extras["action_masks"].copy())
        step.act(last_valid(step.extras["action_masks"]))


def by_set_state(envs: SubprocVecEnv) -> None:
    states = envs.pool.get_state(state_fns="attributes")
    for _ in range(2):
        envs.step(last_valid(envs.env_method("action_masks")))
    envs.pool.set_state(states)


CHANGES = [
    *(by_rollout, by_set_state, lambda envs: envs.step_async(np.array([2, 2, 2]))),
    *(lambda envs: envs.set_attr("place", 3), lambda envs: envs.env_method("step", 2)),
]


@pytest.mark.parametrize("change", CHANGES)
def test_masks_come_from_the_envs_after_a_change_until_the_next_step(change: Any) -> None:
    with closing(make(extras={"action_masks": masks_of})) as envs:
        assert len(envs.env_method("action_masks")) == 3  # before the first reset
        envs.seed(0)
        envs.reset()
        change(envs)
        masks = envs.env_method("action_masks")
        assert_same(np.array(masks), np.array(envs.pool.apply(masks_of)))
        assert len(envs.env_method("action_masks", indices=[0])) == 1
        if envs.waiting:
            envs.step_wait()
        else:
            envs.step(last_valid(masks))
        column = envs.extras["action_masks"]
        column[:] = ~column
        assert_same(envs.env_method("action_masks"), list(column))


def test_envs_need_no_method_for_masks() -> None:
    class Bare(MaskedEnv):
        action_masks = None  # type: ignore[assignment]

    def bare_masks(env: Any) -> Any:
        assert type(env) is Bare
        return MaskedEnv.action_masks(env)

    with closing(SubprocVecEnv([Bare] * 2, num_workers=1, extras={"action_mask": bare_masks})) as envs:
        before = envs.env_method("action_masks")
        envs.reset()
        envs.set_attr("place", 0)
        assert [len(mask) for mask in (*before, *envs.env_method("action_masks"))] == [4] * 4


def test_parts_return_masks_from_their_own_columns(masks: Masks) -> None:
    with closing(make(4, extras={"action_masks": masks})) as envs:
        envs.reset()
        halves = envs.split(2)
        for half in halves:
            half.reset()
            assert masks.computed_in(lambda: half.env_method("action_masks")) == 0  # noqa: B023
            assert_same(half.env_method("action_masks"), list(half.extras["action_masks"]))
        # the parts have reset since the last step of the whole vector env
        assert masks.computed_in(lambda: envs.env_method("action_masks")) == 4
        envs.set_attr("place", 2)
        assert masks.computed_in(lambda: halves[0].env_method("action_masks")) == 2


def test_maskable_ppo_learns_the_same_from_columns_that_each_step_computes_once(masks: Masks) -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")

    def learn(envs: SubprocVecEnv) -> dict[str, Any]:
        torch.manual_seed(0)
        model = sb3_contrib.MaskablePPO(
            "MlpPolicy", VecMonitor(envs), n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu"
        )
        model.learn(200)
        return {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}

    with closing(make(extras={"action_masks": masks})) as envs, closing(make()) as envs_without_columns:
        found = []
        assert masks.computed_in(lambda: found.append(learn(envs))) == 3 * (1 + 3 * 32)  # of three rollouts
        assert_same(found[0], learn(envs_without_columns))
