"""Bit for bit what Gymnasium's own vector envs return, on the same envs, seeds and actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest
import simulator_envs
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv as TheirAsyncVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium_face_envs import ColourSpace, EchoEnv, SpaceEnv, assert_identical
from pairs import each

from remuda.gymnasium import AsyncVectorEnv

MODES = list(AutoresetMode)
NUM_ENVS = 3

SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "scalar": spaces.Box(-1, 1, (), np.float64),
    "discrete": spaces.Discrete(7, start=-3),
    "multi_discrete": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi_binary": spaces.MultiBinary(5),
    "dict": spaces.Dict(
        a=spaces.Discrete(3), b=spaces.Dict(c=spaces.Box(0, 1, (2,)), d=spaces.Tuple((spaces.Discrete(2),)))
    ),
    "tuple": spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.MultiBinary(3), spaces.Tuple((spaces.Discrete(4),)))),
    "text": spaces.Text(8),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
    "one_of": spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
    "dict_of_text": spaces.Dict(word=spaces.Text(8), number=spaces.Box(0, 1, (1,))),
    "custom": ColourSpace(),
}


def compare(
    env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
    other: Callable[..., VectorEnv],
    steps: int,
    mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    **options: Any,
) -> None:
    ours = AsyncVectorEnv(env_fns, autoreset_mode=mode, shared_memory=False, **options)
    theirs = other(env_fns, autoreset_mode=mode)
    for attribute in ("observation_space", "single_observation_space", "action_space", "single_action_space"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    for attribute in ("metadata", "render_mode", "num_envs", "spec"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)

    theirs.action_space.seed(7)
    assert_identical(ours.reset(seed=3, options={"o": 1}), theirs.reset(seed=3, options={"o": 1}), "reset")
    for i in range(steps):
        actions = theirs.action_space.sample()
        our_step, their_step = ours.step(actions), theirs.step(actions)
        assert_identical(our_step, their_step, f"step {i}")
        done = their_step[2] | their_step[3]
        if mode is AutoresetMode.DISABLED and done.any():
            both = (envs.reset(options={"reset_mask": done.copy()}) for envs in (ours, theirs))
            assert_identical(*both, f"reset after step {i}")
    ours.close()
    theirs.close()


@pytest.mark.parametrize(("mode", "num_workers"), [*product(MODES, [None]), *product(MODES[:1], [1, 2])])
def test_cartpole(mode: AutoresetMode, num_workers: int | None) -> None:
    fns = [lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS
    compare(fns, SyncVectorEnv, 300, mode, num_workers=num_workers)


class TimelessEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Statistics of episodes without the time that they took."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *result, info = super().step(action)
        if "episode" in info:
            info["episode"]["t"] = 0.5
        return *result, info  # type: ignore[return-value]


def with_statistics(env_id: str) -> gymnasium.Env[Any, Any]:
    return TimelessEnv(RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=20)))


@each(
    env_id=["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"],
    mode__other=[*product(MODES[:2], [SyncVectorEnv, TheirAsyncVectorEnv])],
)
def test_statistics_of_episodes(mode: AutoresetMode, other: Callable[..., VectorEnv], env_id: str) -> None:
    compare([lambda: with_statistics(env_id)] * NUM_ENVS, other, 100, mode, num_workers=2)


@pytest.mark.parametrize("mode", MODES)
def test_frozen_lake(mode: AutoresetMode) -> None:
    compare([lambda: gymnasium.make("FrozenLake-v1")] * NUM_ENVS, SyncVectorEnv, 300, mode)


@each(simulator=simulator_envs.NAMES, mode=MODES)
def test_simulators(simulator: str, mode: AutoresetMode) -> None:
    """Beside processes that are not forked: what has drawn in this one cannot draw in a copy of it."""
    theirs = partial(TheirAsyncVectorEnv, context="forkserver")
    compare(simulator_envs.env_fns(simulator, 2), theirs, 30, mode)


@each(backend=["thread", "serial"], mode=MODES)
def test_other_backends(mode: AutoresetMode, backend: str) -> None:
    compare([lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS, SyncVectorEnv, 300, mode, backend=backend)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_every_observation_space_with_infos_of_every_kind(space: spaces.Space[Any], mode: AutoresetMode) -> None:
    """In processes where most is told of a step."""
    backend = "process" if mode is AutoresetMode.SAME_STEP else "serial"
    compare([lambda: SpaceEnv(space)] * NUM_ENVS, SyncVectorEnv, 60, mode, backend=backend, num_workers=2)


@pytest.mark.parametrize("mode", MODES)
def test_against_the_original_async_vector_env(mode: AutoresetMode) -> None:
    compare([lambda: SpaceEnv(SPACES["dict"])] * NUM_ENVS, TheirAsyncVectorEnv, 60, mode)


class ActionEnv(EchoEnv):
    """Puts what it was given into its info: value, type, dtype."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"action": (action,), "types": str(_types(action))}


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(part) for key, part in sorted(value.items())}
    if type(value) is tuple:
        return tuple(map(_types, value))
    return type(value).__name__, getattr(value, "dtype", None), getattr(value, "shape", None)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_every_action_space(space: spaces.Space[Any]) -> None:
    compare([lambda: ActionEnv(space)] * NUM_ENVS, SyncVectorEnv, 10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [None, 5, [5, None, 7], (1, 2, 3)], ids=str)
def test_seeds(mode: AutoresetMode, seed: Any) -> None:
    fns = [lambda: SpaceEnv(spaces.Discrete(100))] * NUM_ENVS
    ours, theirs = (cls(fns, autoreset_mode=mode) for cls in (AsyncVectorEnv, SyncVectorEnv))
    for envs in (ours, theirs):
        envs.reset(seed=[10, 11, 12])
    assert_identical(ours.reset(seed=seed), theirs.reset(seed=seed))
    for _ in range(20):
        assert_identical(ours.step([0] * NUM_ENVS), theirs.step([0] * NUM_ENVS))
        if mode is AutoresetMode.DISABLED:
            assert_identical(ours.reset(), theirs.reset())
    for mine, other in zip(ours.np_random, theirs.np_random, strict=True):
        assert mine.bit_generator.state == other.bit_generator.state
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
def test_reset_mask(mode: AutoresetMode) -> None:
    """Masked-out envs return their current observation and no info, and go on as if nothing had been."""
    fns = [lambda: SpaceEnv(spaces.Box(0, 1, (2,)))] * NUM_ENVS
    ours, theirs = (cls(fns, autoreset_mode=mode) for cls in (AsyncVectorEnv, SyncVectorEnv))
    for envs in (ours, theirs):
        envs.reset(seed=2)
    rng = np.random.default_rng(0)
    for i in range(60):
        our_step = ours.step([0] * NUM_ENVS)
        assert_identical(our_step, theirs.step([0] * NUM_ENVS), f"step {i}")
        mask = rng.random(NUM_ENVS) < 0.3
        if mode is AutoresetMode.DISABLED:
            mask |= our_step[2] | our_step[3]
        if mask.any():
            seeds = [i, None, i + 1]
            both = (envs.reset(seed=seeds, options={"reset_mask": mask, "o": i}) for envs in (ours, theirs))
            assert_identical(*both, f"reset {i}")
    ours.close()
    theirs.close()
