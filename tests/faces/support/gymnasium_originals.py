"""Runs Gymnasium's vector envs beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from pool_envs import ColourSpace, assert_same

from remuda.gymnasium import LazyInfos

ATTRIBUTES = (
    *("observation_space", "single_observation_space", "action_space", "single_action_space"),
    *("metadata", "num_envs", "spec"),
)

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
    "dict_of_text": spaces.Dict(word=spaces.Text(8), number=spaces.Box(0, 1, (1,))),
    "custom": ColourSpace(),
}
if hasattr(spaces, "OneOf"):  # Gymnasium 0.29 lacks it
    SPACES["one_of"] = spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,))))


def compare(
    ours: VectorEnv,
    reference: VectorEnv,
    steps: int,
    *,
    seed: Any = 3,
    masked: float = 0.0,
    form: Callable[[Any], Any] = lambda result: result,
) -> None:
    """Resets and steps two vector envs alike, compares all that they return, and closes them.

    Args:
        ours: Our vector env, or a wrapper around it.
        reference: Gymnasium's vector env.
        steps: The number of steps.
        seed: The seed of the second reset.
        masked: The chance that an env is reset after a step, with a seed or without one.
        form: Changes results of both before they are compared.
    """
    for attribute in ATTRIBUTES:
        assert getattr(ours, attribute) == getattr(reference, attribute), attribute
    num_envs = reference.num_envs
    mode = getattr(reference.metadata.get("autoreset_mode"), "value", None)  # Gymnasium 0.29 has none
    kept = []  # infos, which are compared at the end, because lazy infos keep the data that they are stacked from

    def reset_both(seed: Any, **options: Any) -> None:
        (our_obs, our_infos), (obs, infos) = (envs.reset(seed=seed, options={**options}) for envs in (ours, reference))
        assert_same(form(our_obs), form(obs), f"reset {len(kept)}")
        kept.append((our_infos, infos))

    reset_both([*range(10, 10 + num_envs)])
    reset_both(seed, o=1)
    reference.action_space.seed(7)
    rng = np.random.default_rng(0)
    for i in range(steps):
        actions = reference.action_space.sample()
        our_step, their_step = ours.step(actions), reference.step(actions)
        assert_same(form(our_step[:4]), form(their_step[:4]), f"step {i}")
        kept.append((our_step[4], their_step[4]))
        mask = rng.random(num_envs) < masked
        if mode == "Disabled":
            mask |= their_step[2] | their_step[3]
        if mask.any():
            seeds = [None if (i + env) % 2 else i for env in range(num_envs)] if masked else None
            reset_both(seeds, reset_mask=mask, **({"o": i} if i % 2 else {}))
    if mode is not None:
        assert ours.render_mode == reference.render_mode
        if ours.render_mode == "rgb_array":
            assert_same(ours.render(), reference.render(), "pictures")
        for our_generator, generator in zip(ours.np_random, reference.np_random, strict=True):
            assert our_generator.bit_generator.state == generator.bit_generator.state
    ours.close()
    reference.close()
    for i, (our_infos, infos) in enumerate(kept):
        if isinstance(infos, dict):
            assert type(our_infos) is (LazyInfos if ours.unwrapped.lazy_infos else dict)  # type: ignore[attr-defined]
        assert_same(form(without_times(our_infos)), form(without_times(infos)), f"infos {i}")


def without_times(infos: Any) -> Any:
    """Removes the durations in the statistics of episodes."""
    if isinstance(infos, list):
        return [without_times(info) for info in infos]
    statistics = {key: value for key, value in infos.get("episode", {}).items() if key != "t"}
    return {**infos, "episode": statistics} if statistics else {**infos}
