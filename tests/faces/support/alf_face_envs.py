"""Envs for the tests of the ALF face, and a reference that steps them one after another."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import alf
import numpy as np
import torch
from alf.data_structures import StepType, TimeStep
from alf.environments.alf_environment import AlfEnvironment
from alf.tensor_specs import BoundedTensorSpec, TensorSpec
from alf.utils.schedulers import get_progress
from pool_envs import assert_same

STANDS_IN = "alf_stand_in" in Path(alf.__file__).parts

Hook = Callable[..., Any]
Constructor = Callable[..., Any]


class CountingAlfEnv(AlfEnvironment):  # type: ignore[misc]
    """Observes (tag, episodes, steps, last action). The reward is the action, and the info has the steps.

    Hooks are called with the env in the phases build, reset, autoreset (any reset but the first), step, call, render
    and close. If a hook returns a value other than None, the method returns that value.
    """

    metadata = {"render.modes": ["rgb_array"]}

    def __init__(
        self, env_id: int, length: int = 1_000_000, *, cut: bool = False, tag: int | None = None, **hooks: Hook
    ) -> None:
        super().__init__()
        self.env_id, self.length, self.cut, self.hooks = env_id, length, cut, hooks
        self.tag = env_id if tag is None else tag
        self.episodes = self.steps = 0
        self.last_action = -1
        self.last_seed: Any = None
        self._run("build")

    def _run(self, phase: str) -> Any:
        return self.hooks[phase](self) if phase in self.hooks else None

    def observation_spec(self) -> Any:
        return TensorSpec((4,), torch.int64)

    def action_spec(self) -> Any:
        return BoundedTensorSpec((), torch.int64, 0, 999)

    def env_info_spec(self) -> Any:
        return {"steps": TensorSpec((), torch.float32)}

    def _time_step(self, step_type: Any, reward: float = 0.0, discount: float = 1.0) -> TimeStep:
        return TimeStep(
            step_type=step_type,
            reward=np.float32(reward),
            discount=np.float32(discount),
            observation=np.array([self.tag, self.episodes, self.steps, self.last_action]),
            prev_action=np.int64(max(self.last_action, 0)),
            env_id=np.int32(self.env_id),
            env_info={"steps": np.float32(self.steps)},
        )

    def _reset(self) -> Any:
        self.episodes += 1
        self.steps, self.last_action = 0, -1
        return self._run("reset" if self.episodes == 1 else "autoreset") or self._time_step(StepType.FIRST)

    def _step(self, action: Any) -> Any:
        if self.steps >= self.length:
            return self.reset()
        self.steps += 1
        self.last_action = int(action)
        if self.steps < self.length:
            return self._run("step") or self._time_step(StepType.MID, self.last_action)
        return self._run("step") or self._time_step(StepType.LAST, self.last_action, float(self.cut))

    def seed(self, seed: Any) -> Any:
        self.last_seed = seed
        return seed

    def render(self, mode: str = "rgb_array") -> Any:
        return self._run("render") or (mode, self.tag)

    def poke(self, *args: Any, **kwargs: Any) -> Any:
        return self._run("call") or (self.tag, args, kwargs)

    def pid(self) -> int:
        return os.getpid()

    def torch_threads(self) -> int:
        return torch.get_num_threads()

    def progress(self) -> float:
        return get_progress("global_counter")  # type: ignore[no-any-return]

    def close(self) -> None:
        self._run("close")


@alf.configurable
def flavour(value: str = "plain") -> str:
    return value


@alf.configurable
def spice(sourness: int = 0) -> int:
    return sourness


class ConfiguredAlfEnv(CountingAlfEnv):
    """Returns the ALF configuration of the process that hosts the env."""

    def taste(self) -> Any:
        return flavour(), spice()


class Part(NamedTuple):
    position: Any
    flags: Any


class Move(NamedTuple):
    velocity: Any
    choice: Any


class NestedAlfEnv(AlfEnvironment):  # type: ignore[misc]
    """Has nested observations, actions and infos from a seeded generator, two rewards, and random episode lengths."""

    num_tasks = 2

    def __init__(self, env_id: int, end: float = 0.2) -> None:
        super().__init__()
        self.env_id, self.end, self.done = env_id, end, True
        self.random = np.random.RandomState(env_id)

    def observation_spec(self) -> Any:
        return {
            "part": Part(TensorSpec((2,)), TensorSpec((3,), torch.bool)),
            "image": TensorSpec((4, 4, 3), torch.uint8),
            "list": [TensorSpec((), torch.float64), (TensorSpec((1,), torch.int16), ())],
            "nothing": {},
        }

    def action_spec(self) -> Any:
        return {"move": Move(TensorSpec((2,)), BoundedTensorSpec((), torch.int64, 0, 4)), "bits": [TensorSpec((2,))]}

    def reward_spec(self) -> Any:
        return TensorSpec((2,))

    def env_info_spec(self) -> Any:
        return {"deep": {"sums": TensorSpec((2,))}, "count": TensorSpec((), torch.int32)}

    def seed(self, seed: Any) -> None:
        self.random.seed(seed)

    def _time_step(self, step_type: Any, action: Any, discount: float = 1.0) -> TimeStep:
        draw = self.random
        sums = np.asarray(action["move"].velocity, np.float32) + action["bits"][0]
        return TimeStep(
            step_type=step_type,
            reward=draw.rand(2).astype(np.float32),
            discount=np.float32(discount),
            observation={
                "part": Part(draw.rand(2).astype(np.float32), draw.rand(3) > 0.5),
                "image": draw.randint(0, 256, (4, 4, 3)).astype(np.uint8),
                "list": [np.float64(draw.rand()), (draw.randint(0, 9, 1).astype(np.int16), ())],
                "nothing": {},
            },
            prev_action=action,
            env_id=np.int32(self.env_id),
            env_info={"deep": {"sums": sums}, "count": np.int32(draw.randint(9) + action["move"].choice)},
        )

    def _reset(self) -> Any:
        self.done = False
        nothing = {"move": Move(np.zeros(2, np.float32), np.int64(0)), "bits": [np.zeros(2, np.float32)]}
        return self._time_step(StepType.FIRST, nothing)

    def _step(self, action: Any) -> Any:
        if self.done:
            return self.reset()
        self.done = self.random.rand() < self.end
        if not self.done:
            return self._time_step(StepType.MID, action)
        return self._time_step(StepType.LAST, action, float(self.random.rand() < 0.5))


class BatchedAlfEnv(AlfEnvironment):  # type: ignore[misc]
    """Stacks several envs into one batched env. Each of them resets by itself at the end of its episode."""

    batched = True

    def __init__(self, envs: Sequence[Any]) -> None:
        super().__init__()
        self.envs = envs

    @property
    def batch_size(self) -> int:
        return len(self.envs)

    def observation_spec(self) -> Any:
        return self.envs[0].observation_spec()

    def action_spec(self) -> Any:
        return self.envs[0].action_spec()

    def reward_spec(self) -> Any:
        return self.envs[0].reward_spec()

    def env_info_spec(self) -> Any:
        return self.envs[0].env_info_spec()

    def seed(self, seed: Any) -> Any:
        for i, env in enumerate(self.envs):
            env.seed(seed * len(self.envs) + i)

    def _reset(self) -> Any:
        return stack([env.reset() for env in self.envs])

    def _step(self, action: Any) -> Any:
        return stack([env.step(row_of(action, i)) for i, env in enumerate(self.envs)])


def counting(num_envs: int, length: int = 1_000_000, **options: Any) -> list[Constructor]:
    return [functools.partial(CountingAlfEnv, length=length, **options)] * num_envs


def hooked(num_envs: int, which: Sequence[int] = (1,), length: int = 1_000_000, **hooks: Hook) -> list[Constructor]:
    """Returns constructors of envs. The envs with the ids in `which` have these hooks."""
    plain = functools.partial(CountingAlfEnv, length=length)
    return [functools.partial(plain, **hooks) if i in which else plain for i in range(num_envs)]


def batched_of(constructor: Constructor, batch_size: int, num_envs: int) -> list[Constructor]:
    """Returns constructors of batched envs. Their rows are envs from `constructor`, with consecutive env ids."""

    def build(env_id: int) -> Any:
        return BatchedAlfEnv([constructor(env_id=env_id * batch_size + i) for i in range(batch_size)])

    return [build] * num_envs


# -- nests -----------------------------------------------------------------------------------------------


def stack(nests: Sequence[Any]) -> Any:
    return alf.nest.map_structure(lambda *leaves: np.stack(leaves), *nests)


def row_of(nest: Any, i: int) -> Any:
    return alf.nest.map_structure(lambda rows: rows[i], nest)


def random_actions(spec: Any, rows: int, random: Any) -> Any:
    """Returns a nest of tensors with one random action for each row."""

    def draw(leaf: Any) -> Any:
        shape = (rows, *leaf.shape)
        if leaf.dtype.is_floating_point:
            return torch.from_numpy(random.standard_normal(shape).astype(leaf.dtype_str))
        return torch.from_numpy(random.integers(leaf.minimum, leaf.maximum + 1, shape).astype(leaf.dtype_str))

    return alf.nest.map_structure(draw, spec)


def assert_same_time_step(ours: Any, theirs: Any, where: str = "time step") -> None:
    """Compares the types, dtypes, shapes and bits of all tensors."""
    assert_same(ours, theirs, where, _assert_same_tensor)


def _assert_same_tensor(ours: Any, theirs: Any, where: str) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
    assert torch.equal(ours, theirs), f"{where}: {ours} is not {theirs}"


# -- the reference ---------------------------------------------------------------------------------------


class OneAfterAnother:
    """A reference for the ALF face: steps envs one after another in this process and replaces ended ones by spares."""

    def __init__(self, constructors: Sequence[Constructor], num_spares: int = 0, *, resets_ahead: bool = True) -> None:
        self.resets_ahead = resets_ahead
        self.envs = [constructor(env_id=i) for i, constructor in enumerate(constructors)]
        self.num_slots = len(constructors) - num_spares
        self.order = list(range(self.num_slots))
        self.queue = deque(range(self.num_slots, len(constructors)))
        self.fresh: dict[int, Any] = {}  # time steps of envs that have reset in advance
        self.ended: list[int] = []  # slots

    def seed(self, seeds: Sequence[int]) -> None:
        for env, seed in zip(self.envs, seeds, strict=True):
            env.seed(seed)

    def reset(self) -> Any:
        """Resets all envs in their original slots, including those that have reset in advance."""
        self.order, self.ended = list(range(self.num_slots)), []
        self.queue = deque(range(self.num_slots, len(self.envs)))
        self.fresh = {i: self.envs[i].reset() for i in self.queue}
        return self._time_step([self.envs[i].reset() for i in self.order])

    def step(self, actions: Any) -> Any:
        for slot in self.ended:
            self.order[slot] = self.queue.popleft()
        arrays = alf.nest.map_structure(lambda tensor: tensor.numpy(), actions)
        steps = [
            self.fresh.pop(env) if env in self.fresh else self.envs[env].step(row_of(arrays, slot))
            for slot, env in enumerate(self.order)
        ]
        self.ended = [i for i, step in enumerate(steps) if self.resets_ahead and step.step_type == StepType.LAST]
        for slot in self.ended:
            self.queue.append(self.order[slot])
            self.fresh[self.order[slot]] = self.envs[self.order[slot]].reset()
        return self._time_step(steps)

    def _time_step(self, steps: Sequence[Any]) -> Any:
        stacked = stack(steps)
        return alf.nest.map_structure(
            torch.from_numpy, stacked._replace(env_id=np.arange(self.num_slots, dtype=np.int32))
        )
