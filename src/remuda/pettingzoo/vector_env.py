"""`ParallelVectorEnv`: parallel envs of PettingZoo in a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space

import remuda
from remuda import PoolOptions
from remuda._faces.hosted_extras import extras_of_hosted, hosting
from remuda._faces.stats import HasStats
from remuda.pettingzoo import agents_env
from remuda.pettingzoo.agents import Agents, ByAgent, Flags
from remuda.pettingzoo.groups import Space
from remuda.pettingzoo.rollout import ParallelRollout

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from remuda.pettingzoo.sb3 import AgentsVecEnv

Results: TypeAlias = "tuple[ByAgent, dict[str, npt.NDArray[np.float64]], Flags, Flags, Sequence[dict[str, Any]]]"


def vector(
    env_fns: Sequence[Callable[[], Any]], *, state: bool = False, **options: Unpack[PoolOptions]
) -> ParallelVectorEnv:
    """Starts parallel envs of PettingZoo in workers::

        envs = remuda.pettingzoo.vector([simple_spread_v3.parallel_env] * 8, faults="restart")
        obs, infos = envs.reset(seed=0)
        obs, rewards, terminations, truncations, infos = envs.step({agent: policy(obs[agent]) for agent in obs})

    Args:
        env_fns: Functions that return a parallel env each, or an env whose agents take turns (AEC), which PettingZoo's
            `aec_to_parallel` converts. All envs need equal agents and spaces.
        state: Whether `ParallelVectorEnv.state` has the envs' `state()`, which is called after each reset and step. The
            envs need a `state_space`.
        **options: Those of `remuda.Pool`. The functions of `extras` are called with the parallel env.

    Raises: The errors of `remuda.Pool`.
    """
    return ParallelVectorEnv(env_fns, state=state, **options)


class ParallelVectorEnv(HasStats):
    """n parallel envs of PettingZoo. An env is reset, seeded, stepped and, after a fault, rebuilt as a whole.

    Results are dicts with an entry for each of `possible_agents`. Their arrays are views of shared memory, which are
    yours for as long as you hold them, like those of `remuda.Batch`. Rows of agents that are not there are zeros.

    An episode ends when no agent is left; then the env resets by the option `autoreset`, as in a `Pool`. With
    "next_step" (the default) the next step resets it and ignores its actions; with "same_step" the observations are
    those of the new episode, and `final_obs` has the last ones. Rewards and flags are always those of the step.

    If an env fails with `faults="restart"`, its agents that were there are truncated, with rewards of zero.

    Attributes:
        pool: The pool; its calls do not change what `alive` and the like have.
        possible_agents: The names of the agents.
        env_ids: (n,) int64: the envs of the latest results, in the order of their rows.
        alive: dict of (n,) bool: whether the agent is there, and acts next.
        final_obs: A dict like the observations, of the rows that ended an episode in this step; only with same-step
            autoreset, else None. Other rows are undefined.
        state: The envs' `state()`, (n, ...), if `vector` was called with `state=True`; else None.
        extras: The columns of the option `extras`, by name.
    """

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], *, state: bool = False, **options: Unpack[PoolOptions]
    ) -> None:
        given: Any = dict(options)
        given["extras"], _ = extras_of_hosted(given.get("extras"))
        self.pool = self._pool = remuda.Pool(hosting(partial(agents_env.build, with_state=state), env_fns), **given)
        groups, self.possible_agents = self.pool.apply(agents_env.groups_in, env_ids=[0])[0]
        in_same_step = self.pool.autoreset == "same_step"
        self._agents = Agents(groups, self.possible_agents, self.num_envs, in_same_step=in_same_step)
        self.env_ids: npt.NDArray[np.int64] = self.pool.env_ids
        self.alive: Flags = self._agents.by_agent(self._agents.there)
        self.final_obs: ByAgent | None = None
        self.state: Any = None
        self.extras: dict[str, npt.NDArray[Any]] = {}

    # -- spaces ------------------------------------------------------------------------------------------

    @property
    def num_envs(self) -> int:
        """The number of envs."""
        return self.pool.num_envs

    def single_observation_space(self, agent: str) -> Space:
        """The space of an agent's observations in one env."""
        return self._agents.group_of[agent].observation_space

    def single_action_space(self, agent: str) -> Space:
        """The space of an agent's actions in one env."""
        return self._agents.group_of[agent].action_space

    def observation_space(self, agent: str) -> Space:
        """The space of an agent's observations in all envs."""
        return batch_space(self.single_observation_space(agent), self.num_envs)

    def action_space(self, agent: str) -> Space:
        """The space of an agent's actions in all envs: `{agent: envs.action_space(agent).sample() for ...}`."""
        return batch_space(self.single_action_space(agent), self.num_envs)

    # -- stepping ----------------------------------------------------------------------------------------

    def reset(
        self, *, seed: Any = None, options: Any = None, env_ids: Iterable[int] | None = None
    ) -> tuple[ByAgent, Sequence[dict[str, Any]]]:
        """Resets envs. The arguments and errors are those of `Pool.reset`.

        Returns:
            (observations, infos): by agent, an (n, ...) array or a dict or tuple of such; and n dicts, by agent, in
            which agents with an empty info are missing.
        """
        obs, _, _, _, infos = self._take(self.pool.reset(seed=seed, options=options, env_ids=env_ids))
        return obs, infos

    def step(self, actions: Mapping[str, Any], env_ids: Iterable[int] | None = None) -> Results:
        """Steps envs once: `send`, then `recv` for all of them.

        Args:
            actions: For each agent n actions: an element of `action_space(agent)`. An agent may be missing if it is in
                none of the envs. Rows of agents that are not there are ignored.
            env_ids: The envs to step; None for all.

        Returns:
            (observations, rewards, terminations, truncations, infos): dicts by agent of (n, ...) arrays, of (n,)
            float64, and of (n,) bool; the infos are those of `reset`.

        Raises:
            InvalidActionError: Actions of an agent are missing or do not fit. Nothing was sent.
            Exception: Any error of `Pool.step`.
        """
        return self._take(self.pool.step(self._agents.joint_actions(actions, env_ids), env_ids))

    def send(self, actions: Mapping[str, Any], env_ids: Iterable[int] | None = None) -> None:
        """Sends actions, as for `step`, and returns at once. The errors are those of `step` and `Pool.send`."""
        self.pool.send(self._agents.joint_actions(actions, env_ids), env_ids)

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
    ) -> Results:
        """Waits for results, which `env_ids` then names. Arguments and errors: see `Pool.recv`. Returns: see `step`."""
        return self._take(self.pool.recv(min_envs, timeout, max_envs, order))

    def rollout(self, steps: int) -> ParallelRollout:
        """Returns a rollout: memory that the workers fill with `steps` steps of all envs. See `Pool.rollout`."""
        return ParallelRollout(self._agents, self.pool.rollout(steps))

    # -- results -----------------------------------------------------------------------------------------

    def _take(self, batch: remuda.Batch) -> Results:
        rewards, terminations, truncations = map(self._agents.by_agent, self._note(batch))
        return self._agents.observations(batch.obs), rewards, terminations, truncations, batch.infos

    def _note(self, batch: remuda.Batch) -> tuple[Any, Any, Any]:
        """Keeps what the attributes tell of a batch. Returns its rewards, terminations and truncations: (n, agents)."""
        agents, self.env_ids = self._agents, batch.env_ids
        before, there = agents.there[batch.env_ids], agents.alive(batch.obs["alive"], batch.dones)
        numbers = agents.numbers(batch.rewards, batch.truncations, before)
        agents.there[batch.env_ids] = there
        self.alive, self.extras, self.state = agents.by_agent(there), batch.extras, batch.obs.get("state")
        final = batch.final_obs if agents.in_same_step else None
        self.final_obs = None if final is None else agents.observations(final)
        return numbers

    # -- calls -------------------------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, env_ids: Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        """Calls a method of each parallel env, or reads an attribute. See `Pool.call`."""
        return self.pool.call(name, *args, env_ids=env_ids, **kwargs)

    def get_attr(self, name: str, env_ids: Iterable[int] | None = None) -> list[Any]:
        """Returns an attribute of each parallel env. See `Pool.get_attr`."""
        return self.pool.get_attr(name, env_ids)

    def set_attr(self, name: str, value: Any, env_ids: Iterable[int] | None = None, *, lasting: bool = False) -> None:
        """Sets an attribute of each parallel env. See `Pool.set_attr`."""
        self.pool.set_attr(name, value, env_ids, lasting=lasting)

    def render(self) -> list[Any]:
        """Returns `render()` of each env. See `Pool.render`."""
        return self.pool.render()

    def to_sb3(self) -> AgentsVecEnv:
        """Returns a `VecEnv` of Stable-Baselines3, in which each agent of each env is an env of its own.

        Raises:
            ValueError: The agents have different spaces, or the autoreset is not "same_step".
            MissingFrameworkError: Stable-Baselines3 is not installed.
        """
        from remuda.pettingzoo.sb3 import AgentsVecEnv

        return AgentsVecEnv(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.pool.closed

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Closes the envs and ends their workers. See `Pool.close`."""
        self.pool.close(timeout, terminate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ParallelVectorEnv of {self.num_envs} envs with {len(self.possible_agents)} agents>"
