"""Estimates advantages for rollouts by GAE (Schulman et al. 2015, https://arxiv.org/abs/1506.02438)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from remuda._error_frames import holds_nothing

Floats: TypeAlias = npt.NDArray[np.float64]


class HasAdvantages:
    """The base class of rollouts, with a method that estimates advantages."""

    def _check_filled(self) -> None:
        """Raises StateError while the rollout is still being filled."""

    @holds_nothing
    def gae(
        self: Any, values: Any, gamma: float = 0.99, lam: float = 0.95, final_values: Any = None
    ) -> tuple[Floats, Floats]:
        """Estimates advantages by GAE (Schulman et al. 2015, equation 16), and the returns that the critic learns::

            advantages, returns = rollout.gae(critic(rollout.obs), gamma=0.99, lam=0.95)
            learn(advantages[rollout.valid], returns[rollout.valid])

        For each step t of an env, up to the last step of its episode or of the rollout,

            delta[t] = rewards[t] + gamma * next_value[t] - values[t]
            advantages[t] = delta[t] + gamma * lam * advantages[t + 1]  # without the latter after the last step
            returns[t] = advantages[t] + values[t]

        `next_value[t]` is `values[t + 1]` within an episode, also if the rollout ends within it. It is 0 if the episode
        was terminated. If the episode was truncated, it is the value of the terminal observation: `final_values[t]`
        if given, else with next-step autoreset `values[t + 1]`, because the terminal observation is `obs[t + 1]`.
        With same-step autoreset that is `final_obs[t]`; without `final_values` its value counts as 0.

        Args:
            values: (T + 1, n): the critic's values of `obs`, including the last observations.
            gamma: The discount, from 0 to 1.
            lam: Lambda, from 0 to 1: 0 has the least variance, 1 the least bias.
            final_values: (T, n): the critic's values of the terminal observations. Only entries of steps that truncated
                their episode are read.

        Returns:
            (advantages, returns), each (T, n) float64. Both are 0 in rows that are not `valid`.

        Raises:
            ValueError: An array has another shape, a number is not from 0 to 1, or rewards are vectors.
            StateError: The rollout is still being filled.
        """
        self._check_filled()
        if self.rewards.ndim > 2:
            raise ValueError(
                f"expected rewards that are numbers, got vectors, {self.rewards.shape}: assign a weighted sum first, "
                "such as rollout.rewards = rollout.rewards @ weights"
            )
        valid, ends = self.valid, (self.terminations, self.truncations)
        if final_values is None and self.final_obs is not None:
            final_values = np.zeros(self.rewards.shape)
        return gae(self.rewards, values, *ends, valid, gamma, lam, final_values)


def gae(
    rewards: Any,
    values: Any,
    terminations: Any,
    truncations: Any,
    valid: Any = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    final_values: Any = None,
) -> tuple[Floats, Floats]:
    """Estimates advantages by GAE (Schulman et al. 2015, equation 16) for arrays of T steps. See `Rollout.gae`.

    Args:
        rewards: (T, ...). The other axes are those of envs, or of envs and agents.
        values: (T + 1, ...): the critic's values before each step, and after the last.
        terminations, truncations: (T, ...) bool: whether the step ended an episode.
        valid: (T, ...) bool: whether the step was made; None: all were.
        gamma: The discount, from 0 to 1.
        lam: Lambda, from 0 to 1.
        final_values: (T, ...): the values of the terminal observations of truncated episodes; None: these observations
            have the values `values[1:]`, as with next-step autoreset.

    Returns:
        (advantages, returns), each (T, ...) float64: new arrays. Both are 0 in rows that are not `valid`.

    Raises:
        ValueError: An array has another shape, or a number is not from 0 to 1.
    """
    rewarded = np.asarray(rewards, np.float64)
    shape = steps, *others = rewarded.shape
    known = _checked("values", values, (steps + 1, *others))
    for name, number in (("gamma", gamma), ("lam", lam)):
        if not _is_share(number):
            raise ValueError(f"expected {name} to be a number from 0 to 1, got {number!r}")
    terminated = _checked("terminations", terminations, shape, np.bool_)
    truncated = _checked("truncations", truncations, shape, np.bool_)
    made = np.ones(shape, np.bool_) if valid is None else _checked("valid", valid, shape, np.bool_)
    next_values = np.where(terminated, 0.0, known[1:])
    if final_values is not None:
        next_values = np.where(truncated & ~terminated, _checked("final_values", final_values, shape), next_values)
    deltas = np.where(made, rewarded + gamma * next_values - known[:-1], 0.0)
    goes_on = made & ~(terminated | truncated)
    advantages, last = np.zeros(shape), np.zeros(others)
    for t in reversed(range(steps)):
        advantages[t] = last = deltas[t] + np.where(goes_on[t], gamma * lam * last, 0.0)
    return advantages, np.where(made, advantages + known[:-1], 0.0)


def _is_share(number: Any) -> bool:
    try:
        return np.ndim(number) == 0 and bool(0 <= number <= 1)
    except TypeError:
        return False


def _checked(name: str, values: Any, shape: tuple[int, ...], dtype: type = np.float64) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.asarray(values, dtype)
    if array.shape != shape:
        raise ValueError(f"expected {name} to have the shape {shape}, got {array.shape}")
    return array
