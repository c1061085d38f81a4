"""Columns of `extras` replace calls to the envs, above all for the masks of sb3-contrib's MaskablePPO."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from masked_envs import Bare, MaskedEnv, bare_masks, masks_of
from pool_envs import assert_same
from stable_baselines3.common.vec_env import VecMonitor

from remuda import StepColumn, _core
from remuda.sb3 import SubprocVecEnv


def make(num_envs: int = 3, **options: Any) -> SubprocVecEnv:
    return SubprocVecEnv([MaskedEnv] * num_envs, num_workers=1, **options)


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects the messages to workers other than steps and resets."""
    from remuda._engine.commands.exchange import Exchange

    sent: list[Any] = []
    post = Exchange._post

    def counting(self: Exchange, *args: Any, **kwargs: Any) -> int:
        sent.append(args)
        return post(self, *args, **kwargs)

    monkeypatch.setattr(Exchange, "_post", counting)
    return sent


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
def test_masks_come_from_the_columns_without_messages_to_envs(name: str, messages: list[Any]) -> None:
    with closing(make(extras={name: masks_of})) as envs, closing(make()) as envs_without_columns:
        del messages[:]  # messages of the constructors
        ours = drive(envs, 30)
        assert envs.has_attr("action_masks")
        assert messages == []
        assert_same(ours, drive(envs_without_columns, 30))
        assert len(messages) == 3 * 30
        assert_same(envs.extras[name], np.array(envs.env_method("action_masks")))
        assert_same(envs.get_attr(name), list(envs.extras[name]))
        assert_same(envs.env_method("action_masks", indices=[-1, 0, 0]), [envs.extras[name][i] for i in (2, 0, 0)])
        assert_same(envs.env_method("action_masks", indices=1), [envs.extras[name][1]])
        assert len(messages) == 3 * 30
        envs.env_method("action_masks")[0][:] = False
        assert envs.env_method("action_masks")[0].any()  # it was a copy of the column


def by_rollout(envs: SubprocVecEnv) -> None:
    for step in envs.rollout(6):
        assert_same(np.array(envs.env_method("action_masks")), step.extras["action_masks"].copy())
        step.act(last_valid(step.extras["action_masks"]))


def by_set_state(envs: SubprocVecEnv) -> None:
    states = envs.pool.get_state(state_fns="attributes")
    for _ in range(2):
        envs.step(last_valid(envs.env_method("action_masks")))
    envs.pool.set_state(states)


def by_a_step_in_flight(envs: SubprocVecEnv) -> None:
    envs.step_async(np.array([2, 2, 2]))


CHANGES = [
    *(by_rollout, by_set_state, by_a_step_in_flight),
    *(lambda envs: envs.set_attr("place", 3), lambda envs: envs.env_method("_observe")),
]


@pytest.mark.parametrize("change", CHANGES)
def test_masks_come_from_the_envs_after_a_change_until_the_next_step(change: Any, messages: list[Any]) -> None:
    with closing(make(extras={"action_masks": masks_of})) as envs:
        assert len(envs.env_method("action_masks")) == 3  # before the first reset
        envs.seed(0)
        envs.reset()
        change(envs)
        del messages[:]
        masks = envs.env_method("action_masks")
        assert len(messages) == 3
        assert_same(np.array(masks), np.array(envs.pool.apply(masks_of)))
        assert len(envs.env_method("action_masks", indices=[0])) == 1
        if envs.waiting:
            envs.step_wait()
        else:
            envs.step(last_valid(masks))
        del messages[:]
        envs.env_method("action_masks")
        assert messages == []


def test_envs_need_no_method_for_masks() -> None:
    with closing(SubprocVecEnv([Bare] * 2, num_workers=1, extras={"action_mask": bare_masks})) as envs:
        before = envs.env_method("action_masks")
        envs.reset()
        envs.set_attr("place", 0)
        assert [len(mask) for mask in (*before, *envs.env_method("action_masks"))] == [4] * 4


def test_parts_return_masks_from_their_own_columns(messages: list[Any]) -> None:
    with closing(make(4, extras={"action_masks": masks_of})) as envs:
        envs.reset()
        halves = envs.split(2)
        del messages[:]
        for half in halves:
            half.reset()
            assert_same(half.env_method("action_masks"), list(half.extras["action_masks"]))
        assert messages == []
        # the parts have reset since the last step of the whole vector env
        assert len(envs.env_method("action_masks")) == 4
        assert len(messages) == 4
        envs.set_attr("place", 2)
        del messages[:]
        halves[0].env_method("action_masks")
        assert len(messages) == 2


def train(envs: Any, messages: list[Any]) -> tuple[dict[str, Any], int]:
    """Returns the trained weights, and the number of messages to envs during training."""
    from sb3_contrib import MaskablePPO

    torch.manual_seed(0)
    model = MaskablePPO("MlpPolicy", VecMonitor(envs), n_steps=32, batch_size=32, n_epochs=2, seed=3, device="cpu")
    del messages[:]
    model.learn(200)
    # the others announce which numbers in infos have columns
    to_envs = [args for args in messages if args[1] != _core.WHOLE_WORKER]
    envs.close()
    return {name: tensor.numpy() for name, tensor in model.policy.state_dict().items()}, len(to_envs)


def test_maskable_ppo_learns_the_same_from_columns_without_messages_to_envs(messages: list[Any]) -> None:
    pytest.importorskip("sb3_contrib")
    ours, num_messages = train(make(extras={"action_masks": masks_of}), messages)
    reference, num_messages_without_columns = train(make(), messages)
    assert_same(ours, reference)
    assert num_messages == 0
    assert num_messages_without_columns >= 200
