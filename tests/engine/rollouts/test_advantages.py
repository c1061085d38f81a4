"""The advantages of rollouts equal those of a plain loop over each episode."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from pairs import each
from pool_envs import begun, counting
from rollout_envs import CutOffEnv, ending, fill

from remuda import Rollout, ShardRollout, StateError

GAMMA, LAM = 0.9, 0.8


def plain_loop(rollout: Any, values: Any, finals: Any = None) -> tuple[Any, Any]:
    """Computes advantages by equation 16 of Schulman et al. 2015, as a sum over the rest of each episode."""
    steps, envs = rollout.rewards.shape
    advantages, returns = np.zeros((steps, envs)), np.zeros((steps, envs))
    for env in range(envs):
        for episode in episodes_of(rollout, env):
            deltas = [delta(rollout, values, finals, t, env) for t in episode]
            for i, t in enumerate(episode):
                advantages[t, env] = sum((GAMMA * LAM) ** k * later for k, later in enumerate(deltas[i:]))
                returns[t, env] = advantages[t, env] + values[t, env]
    return advantages, returns


def episodes_of(rollout: Any, env: int) -> list[list[int]]:
    """Returns the steps of each episode that are in the rollout."""
    episodes: list[list[int]] = [[]]
    for t in range(rollout.steps):
        if rollout.valid[t, env]:
            episodes[-1].append(t)
        if not rollout.valid[t, env] or rollout.terminations[t, env] or rollout.truncations[t, env]:
            episodes.append([])
    return episodes


def delta(rollout: Any, values: Any, finals: Any, t: int, env: int) -> float:
    if rollout.terminations[t, env]:
        follows = 0.0
    elif not rollout.truncations[t, env]:
        follows = values[t + 1, env]
    elif finals is not None:
        follows = finals[t, env]
    else:
        follows = values[t + 1, env] if rollout.final_obs is None else 0.0
    return float(rollout.rewards[t, env] + GAMMA * follows - values[t, env])


def guesses(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(3).normal(size=shape)


def assert_like_the_loop(rollout: Any, finals: Any = None) -> None:
    values = guesses((rollout.steps + 1, rollout.num_envs))
    values[np.flatnonzero(rollout.valid.any(1))[-1] + 2 :] = np.nan  # these observations do not exist
    expected = plain_loop(rollout, values, finals)
    for got, reference in zip(rollout.gae(values, GAMMA, LAM, final_values=finals), expected, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, reference, rtol=1e-12, atol=1e-12)


@each(autoreset=["next_step", "same_step"], with_finals=[False, True], parts=[1, 2])
def test_advantages_equal_a_loop_over_each_episode(autoreset: Any, with_finals: bool, parts: int) -> None:
    env_fns = [*ending([1, 3, 50]), *(partial(CutOffEnv, length) for length in (1, 4, 50))]
    with begun(env_fns, num_workers=2, autoreset=autoreset, seed=0) as pool:
        for _ in range(2):  # the second rollout begins within episodes or just after their ends
            rollout = pool.rollout(11, parts=parts)
            for t, step in enumerate(rollout):
                step.act((step.env_ids * 3 + t) % 5)
            assert rollout.terminations.any() and rollout.truncations.any()
            assert_like_the_loop(rollout, guesses((11, 6)) if with_finals else None)


@pytest.mark.parametrize("with_finals", [False, True])
@pytest.mark.parametrize("has_final_obs", [False, True])
def test_advantages_of_any_rows_equal_the_loop(has_final_obs: bool, with_finals: bool) -> None:
    """Rows without a step, such as those after a fault or an early close, have none."""
    for seed in range(50):
        rollout = made_up(np.random.default_rng(seed), has_final_obs)
        assert_like_the_loop(rollout, guesses((11, 6)) if with_finals else None)
        advantages, returns = rollout.gae(guesses((12, 6)))
        assert not advantages[~rollout.valid].any() and not returns[~rollout.valid].any()


def made_up(rng: np.random.Generator, has_final_obs: bool) -> ShardRollout:
    valid = rng.random((11, 6)) < 0.8
    valid[rng.integers(3, 12) :] = False
    obs = np.zeros((12, 6))
    return ShardRollout(
        shard=0,
        node="here",
        policy_version=0,
        env_ids=np.arange(6),
        obs=obs,
        actions=obs[:-1],
        rewards=rng.normal(size=(11, 6)) * valid,
        terminations=valid & (rng.random((11, 6)) < 0.2),
        truncations=valid & (rng.random((11, 6)) < 0.2),
        valid=valid,
        episode_starts=np.zeros((12, 6), bool),
        final_obs=obs[:-1] if has_final_obs else None,
    )


def made() -> Rollout:
    """Returns a full rollout. It is refused until it is full."""
    with begun(counting(2), backend="serial") as pool:
        rollout = pool.rollout(3)
        with pytest.raises(StateError, match="still being filled"):
            rollout.gae(np.zeros((4, 2)))
        return fill(rollout)


def test_values_may_be_lists_or_tensors() -> None:
    torch = pytest.importorskip("torch")
    rollout, values = made(), guesses((4, 2))
    expected = rollout.gae(values)
    np.testing.assert_array_equal(rollout.gae(values.tolist()), expected)
    np.testing.assert_array_equal(rollout.gae(torch.tensor(values)), expected)
    np.testing.assert_allclose(rollout.gae(values.astype(np.float32)), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"values": np.zeros((3, 2))}, r"expected values to have the shape \(4, 2\), got \(3, 2\)"),
        ({"values": np.zeros((4, 2, 1))}, r"expected values to have the shape \(4, 2\), got \(4, 2, 1\)"),
        ({"final_values": np.zeros((4, 2))}, r"expected final_values to have the shape \(3, 2\), got \(4, 2\)"),
        ({"gamma": 1.1}, "expected gamma to be a number from 0 to 1, got 1.1"),
        ({"gamma": float("nan")}, "expected gamma to be a number from 0 to 1, got nan"),
        ({"gamma": np.full(2, 0.9)}, r"expected gamma to be a number from 0 to 1, got array\(\[0.9, 0.9\]\)"),
        ({"lam": None}, "expected lam to be a number from 0 to 1, got None"),
        ({"lam": -0.1}, "expected lam to be a number from 0 to 1, got -0.1"),
    ],
)
def test_wrong_arguments_of_gae_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        made().gae(**{"values": np.zeros((4, 2)), **arguments})
