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

    The attributes that are described here are dicts by agent, unless they say otherwise. All others are those of
    `remuda.Rollout`: `steps`, `num_envs`, `env_ids`, `columns`, `infos`, `faults`, `lost`, `is_open`, `lay_out` and
    `close`. Observations and actions are views of shared memory, which are valid while you hold them.

    Attributes:
        rollout: The pool's rollout.
        obs: (T + 1, n, ...), or a dict or tuple of such: the observations before each step, and after the last.
        obs_by_group: The same memory as a dict by group of (T + 1, n, agents, ...). See `ParallelVectorEnv.groups`.
        actions: (T, n, ...), or a dict or tuple of such: the actions as the envs received them.
        actions_by_group: The same memory as a dict by group of (T, n, agents, ...).
        alive: (T + 1, n) bool: whether the agent is there with the observation.
        state: (T + 1, n, ...), no dict: the envs' `state()`, if `vector` was called with `state=True`; else None.
        extras: The columns of the option `extras`, by name. See `remuda.Rollout`.
    """

    def __init__(self, agents: Agents, rollout: Rollout, newest: Newest) -> None:
        self._agents, self.rollout, self._newest = agents, rollout, newest
        self.obs: ByAgent = agents.observations(rollout.obs, axis=2)
        self.obs_by_group: dict[str, Any] = rollout.obs["agents"]
        self.actions: ByAgent = agents.actions(rollout.actions, axis=2)
        self.actions_by_group: dict[str, Any] = rollout.actions
        self.state: Any = rollout.obs.get("state")
        self.extras = {name: column for name, column in rollout.extras.items() if name != NUMBERS}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "rollout":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.rollout, name)

    def __len__(self) -> int:
        return len(self.rollout)

    def __iter__(self) -> Iterator[ParallelStep]:
        """Steps all envs together, T times. Each turn is a `ParallelStep`, which needs a call of `act`.

        If the rollout has parts, each part has T turns. The errors are those of `iter(remuda.Rollout)`.
        """
        return map(self._turn, iter(self.rollout))

    def partial(self, min_envs: int) -> Iterator[ParallelStep]:
        """Steps each env T times, when it is ready. See `remuda.Rollout.partial`."""
        return map(self._turn, self.rollout.partial(min_envs))

    def _turn(self, step: RolloutStep) -> ParallelStep:
        return ParallelStep(self._agents, step, self._newest)

    def by_group(self, arrays: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Returns arrays by agent as one array for each group: (T, n, ...) as (T, n, agents, ...). Copies.

        For `rewards`, flags, `valid`, and advantages. `obs_by_group` and `actions_by_group` need no copy.
        """
        return {
            group.name: np.stack([arrays[agent] for agent in group.agents], axis=2) for group in self._agents.groups
        }

    def by_agent(self, arrays: Mapping[str, Any]) -> ByAgent:
        """Returns arrays by group as views by agent: (T, n, agents, ...) as (T, n, ...), such as values for `gae`."""
        return self._agents.split_groups(arrays, axis=2)

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
    def episode_starts(self) -> Flags:
        """(T + 1, n) bool: whether `obs` is the agent's first one in an episode, or since it was absent. A copy."""
        there, starts = self._there, self.rollout.episode_starts[..., None]
        after_absence = np.concatenate([np.zeros_like(there[:1]), ~there[:-1]])
        return self._agents.by_agent(there & (starts | after_absence))

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
        obs: A dict by agent of (k, ...): views of the rollout; copies in `partial`.
        obs_by_group: The same memory as a dict by group of (k, agents, ...).
        alive: A dict by agent of (k,) bool: whether the agent acts.
        env_ids: (k,) int64: the envs that act next.
        rows: See `remuda.RolloutStep`.
    """

    def __init__(self, agents: Agents, step: RolloutStep, newest: Newest) -> None:
        self._agents, self._step, self._newest = agents, step, newest
        self.obs: ByAgent = agents.observations(step.obs)
        self.obs_by_group: dict[str, Any] = step.obs["agents"]
        self.env_ids, self.rows = step.env_ids, step.rows
        newest.follow()
        self.alive: Flags = agents.by_agent(newest.known(step.env_ids))

    @property
    def extras(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of the option `extras` that belong to `obs`, by name: (k, ...). Without step columns."""
        return self._step.extras

    def act(self, actions: Mapping[str, Any], **columns: Any) -> None:
        """Sends actions, as for `ParallelVectorEnv.step`. `columns`: see `RolloutStep.act`."""
        env_ids = self.env_ids.tolist()
        self._step.act(self._agents.joint_actions(actions, env_ids, self._newest.may_act(env_ids)), **columns)

    def act_by_group(self, actions: Mapping[str, Any], **columns: Any) -> None:
        """Sends actions like `act`. `actions`: a dict by group of (k, agents, ...)."""
        self.act(self._agents.split_groups(actions, axis=1), **columns)
