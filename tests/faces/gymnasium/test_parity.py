"""The Gymnasium face returns, bit for bit, what Gymnasium's vector envs return for the same envs, seeds and actions."""

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
from gymnasium_face_envs import SpaceEnv, TimelessEnv
from pairs import each
from pool_envs import ColourSpace, SampleEnv, assert_same

from remuda.gymnasium import AsyncVectorEnv, LazyInfos

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
    reference = other(env_fns, autoreset_mode=mode)
    for attribute in ("observation_space", "single_observation_space", "action_space", "single_action_space"):
        assert getattr(ours, attribute) == getattr(reference, attribute)
    for attribute in ("metadata", "render_mode", "num_envs", "spec"):
        assert getattr(ours, attribute) == getattr(reference, attribute)

    reference.action_space.seed(7)
    (our_obs, our_infos), (obs, infos) = (envs.reset(seed=3, options={"o": 1}) for envs in (ours, reference))
    assert_same(our_obs, obs, "reset")
    kept = [(our_infos, infos)]
    for i in range(steps):
        actions = reference.action_space.sample()
        our_step, their_step = ours.step(actions), reference.step(actions)
        assert_same(our_step[:4], their_step[:4], f"step {i}")
        kept.append((our_step[4], their_step[4]))
        done = their_step[2] | their_step[3]
        if mode is AutoresetMode.DISABLED and done.any():
            both = (envs.reset(options={"reset_mask": done.copy()}) for envs in (ours, reference))
            assert_same(*both, f"reset after step {i}")
    if ours.render_mode == "rgb_array":
        assert_same(ours.render(), reference.render(), "pictures")
    ours.close()
    reference.close()
    for i, (our_infos, infos) in enumerate(kept):  # lazy infos keep the data that they are stacked from
        assert type(our_infos) is (LazyInfos if options.get("lazy_infos") else dict)
        assert_same(dict(our_infos), infos, f"infos of step {i}")


def with_statistics(env_id: str) -> gymnasium.Env[Any, Any]:
    return TimelessEnv(RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=20)))


@each(
    env_id=["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"],
    mode__other=[*product(MODES[:2], [SyncVectorEnv, TheirAsyncVectorEnv])],
)
def test_statistics_of_episodes_equal_gymnasiums(
    mode: AutoresetMode, other: Callable[..., VectorEnv], env_id: str
) -> None:
    compare([lambda: with_statistics(env_id)] * NUM_ENVS, other, 100, mode, num_workers=2)


@pytest.mark.watchdog(900)  # each case starts processes of a simulator
@each(simulator=simulator_envs.SOME, mode=MODES[:2])
def test_simulators_equal_gymnasiums(simulator: str, mode: AutoresetMode) -> None:
    """Gymnasium's processes are not forked, because a fork of a process that has rendered cannot render."""
    reference = partial(TheirAsyncVectorEnv, context="forkserver")
    compare(simulator_envs.env_fns(simulator, 2), reference, 30, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_every_observation_space_and_kind_of_info_equals_gymnasiums(
    space: spaces.Space[Any], mode: AutoresetMode
) -> None:
    """Same-step autoreset has the most infos, so only this mode runs in processes."""
    backend = "process" if mode is AutoresetMode.SAME_STEP else "serial"
    options: dict[str, Any] = {"backend": backend, "lazy_infos": mode is not AutoresetMode.DISABLED}
    compare([lambda: SpaceEnv(space)] * NUM_ENVS, SyncVectorEnv, 60, mode, num_workers=2, **options)


@pytest.mark.parametrize("mode", MODES)
def test_steps_equal_gymnasiums_async_vector_env(mode: AutoresetMode) -> None:
    compare([lambda: SpaceEnv(SPACES["dict"])] * NUM_ENVS, TheirAsyncVectorEnv, 60, mode)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_actions_of_every_space_arrive_as_in_gymnasium(space: spaces.Space[Any]) -> None:
    compare([lambda: SampleEnv(spaces.Discrete(9), space)] * NUM_ENVS, SyncVectorEnv, 10, backend="serial")


@each(mode=MODES, seed=[None, 5, [5, None, 7], (1, 2, 3)])
def test_seeds_are_used_as_in_gymnasium(mode: AutoresetMode, seed: Any) -> None:
    fns = [lambda: SpaceEnv(spaces.Discrete(100))] * NUM_ENVS
    ours, reference = (cls(fns, autoreset_mode=mode) for cls in (AsyncVectorEnv, SyncVectorEnv))
    for envs in (ours, reference):
        envs.reset(seed=[10, 11, 12])
    assert_same(ours.reset(seed=seed), reference.reset(seed=seed))
    for _ in range(20):
        assert_same(ours.step([0] * NUM_ENVS), reference.step([0] * NUM_ENVS))
        if mode is AutoresetMode.DISABLED:
            assert_same(ours.reset(), reference.reset())
    for mine, other in zip(ours.np_random, reference.np_random, strict=True):
        assert mine.bit_generator.state == other.bit_generator.state
    ours.close()
    reference.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_reset_mask_works_as_in_gymnasium(mode: AutoresetMode) -> None:
    """Masked-out envs return their current observation and no info, and their episodes continue."""
    fns = [lambda: SpaceEnv(spaces.Box(0, 1, (2,)))] * NUM_ENVS
    ours, reference = (cls(fns, autoreset_mode=mode) for cls in (AsyncVectorEnv, SyncVectorEnv))
    for envs in (ours, reference):
        envs.reset(seed=2)
    rng = np.random.default_rng(0)
    for i in range(60):
        our_step = ours.step([0] * NUM_ENVS)
        assert_same(our_step, reference.step([0] * NUM_ENVS), f"step {i}")
        mask = rng.random(NUM_ENVS) < 0.3
        if mode is AutoresetMode.DISABLED:
            mask |= our_step[2] | our_step[3]
        if mask.any():
            seeds = [i, None, i + 1]
            others = {"o": i} if i % 2 else {}
            both = (envs.reset(seed=seeds, options={"reset_mask": mask, **others}) for envs in (ours, reference))
            assert_same(*both, f"reset {i}")
    ours.close()
    reference.close()
