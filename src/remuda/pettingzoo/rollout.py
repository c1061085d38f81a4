"""Rollouts of parallel envs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda import Rollout, RolloutStep, gae
from remuda.pettingzoo.agents import Agents, ByAgent, Flags
from remuda.pettingzoo.agents_env import NUMBERS
from remuda.pettingzoo.newest import Newest


class ParallelRollout:
    """T steps of n parallel envs. `ParallelVectorEnv.rollout` returns it::

        rollout = envs.rollout(128)
        for step in rollout:  # 128 times
            step.act({agent: policy(obs) for agent, obs in step.obs.items()})
        advantages, returns = rollout.gae({agent: critic(obs) for agent, obs in rollout.obs.items()})

    All attributes are dicts by agent. Observations are views of shared memory, which are valid while you hold them.

    Attributes:
        rollout: The pool's rollout.
        obs: (T + 1, n, ...), or a dict or tuple of such: the observations before each step, and after the last.
        alive: (T + 1, n) bool: whether the agent is there with the observation.
        state: (T + 1, n, ...), no dict: the envs' `state()`, if `vector` was called with `state=True`; else None.
    """

    def __init__(self, agents: Agents, rollout: Rollout, newest: Newest) -> None:
        self._agents, self.rollout, self._newest = agents, rollout, newest
        self.obs: ByAgent = agents.observations(rollout.obs, axis=2)
        self.state: Any = rollout.obs.get("state")

    def __iter__(self) -> Iterator[ParallelStep]:
        """Steps all envs together, T times. Each turn is a `ParallelStep`, which needs a call of `act`."""
        for step in self.rollout:
            yield ParallelStep(self._agents, step, self._newest)

    @property
    def alive(self) -> Flags:
        return self._agents.by_agent(self._there)

    @property
    def _there(self) -> npt.NDArray[np.bool_]:
        shown: npt.NDArray[np.bool_] = self.rollout.obs["alive"].astype(np.bool_)
        if self._agents.in_same_step:
            return shown
        # The row of an env that has failed repeats the last observation, of an episode that is over.
        return shown & ~self.rollout._ended_at(*self.rollout._rows)[..., None]

    @property
    def _ended(self) -> npt.NDArray[np.bool_]:
        ended: npt.NDArray[np.bool_] = self.rollout.terminations | self.rollout.truncations
        return ended

    @property
    def _numbers(self) -> tuple[Any, Any, Any]:
        return self._agents.numbers(self.rollout.extras[NUMBERS], self.rollout.truncations, self._there[:-1])

    @property
    def rewards(self) -> dict[str, npt.NDArray[np.float64]]:
        """(T, n) float64: the rewards; 0 where the agent was not there."""
        return self._agents.by_agent(self._numbers[0])

    @property
    def terminations(self) -> Flags:
        """(T, n) bool: whether the step ended the agent's episode in a terminal state."""
        return self._agents.by_agent(self._numbers[1])

    @property
    def truncations(self) -> Flags:
        """(T, n) bool: whether the step cut the agent's episode off."""
        return self._agents.by_agent(self._numbers[2])

    @property
    def valid(self) -> Flags:
        """(T, n) bool: whether the agent acted. A copy."""
        return self._agents.by_agent(self.rollout.valid[..., None] & self._there[:-1])

    @property
    def final_obs(self) -> ByAgent | None:
        """(T, n, ...) with same-step autoreset: the last observations in rows that end an episode; else None."""
        finals = self.rollout.final_obs
        return None if finals is None else self._agents.observations(finals, axis=2)

    def gae(
        self,
        values: Mapping[str, Any],
        gamma: float = 0.99,
        lam: float = 0.95,
        final_values: Mapping[str, Any] | None = None,
    ) -> tuple[ByAgent, ByAgent]:
        """Estimates the advantages of each agent, and the returns that its critic learns, as `remuda.gae` does.

        Args:
            values: By agent, (T + 1, n): the critic's values of `obs`.
            gamma, lam: See `remuda.gae`.
            final_values: By agent, (T, n): with same-step autoreset, the values of `final_obs`.

        Returns:
            (advantages, returns): dicts by agent of (T, n) float64, which are 0 in rows that are not `valid`.
        """
        self.rollout._check_filled()
        rewards, terminations, truncations, valid = self.rewards, self.terminations, self.truncations, self.valid
        advantages, returns = ByAgent(), ByAgent()
        for agent, own in values.items():
            finals = None
            if self._agents.in_same_step:  # an agent that leaves before the others has its last observation in `obs`
                known = 0.0 if final_values is None else final_values[agent]
                finals = np.where(self._ended, known, np.asarray(own)[1:])
            rows = rewards[agent], own, terminations[agent], truncations[agent], valid[agent]
            advantages[agent], returns[agent] = gae(*rows, gamma, lam, finals)
        return advantages, returns


class ParallelStep:
    """One turn of a rollout.

    Attributes:
        obs: A dict by agent of (n, ...): views of the rollout.
        alive: A dict by agent of (n,) bool: whether the agent acts.
    """

    def __init__(self, agents: Agents, step: RolloutStep, newest: Newest) -> None:
        self._agents, self._step, self._newest = agents, step, newest
        self.obs: ByAgent = agents.observations(step.obs)
        newest.follow()
        self.alive: Flags = agents.by_agent(newest.known(step.env_ids))

    def act(self, actions: Mapping[str, Any], **columns: Any) -> None:
        """Sends actions, as for `ParallelVectorEnv.step`. `columns`: see `RolloutStep.act`."""
        env_ids = self._step.env_ids.tolist()
        self._step.act(self._agents.joint_actions(actions, env_ids, self._newest.may_act(env_ids)), **columns)
