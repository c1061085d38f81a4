"""`ParallelVectorEnv`: parallel envs of PettingZoo in a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space

import remuda
from remuda import PoolOptions, StepColumn
from remuda._faces.hosting import extras_of_hosted, hosting
from remuda._faces.pool_beneath import HasStats, closed_on_error
from remuda.pettingzoo import agents_env
from remuda.pettingzoo.agents import Agents, ByAgent, Flags
from remuda.pettingzoo.agents_env import NUMBERS, numbers_of
from remuda.pettingzoo.groups import Space
from remuda.pettingzoo.newest import Newest
from remuda.pettingzoo.rollout import ParallelRollout

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from remuda import ColumnType
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

    `env_ids`, `alive`, `final_obs`, `state` and `extras` belong to the newest results, whichever call has received
    them: `step`, a rollout, or a call of `pool`. In `pool`, the reward of an env is the mean over `possible_agents`,
    and the column "by_agent" of `extras` has the rewards, terminations and truncations of agents, (n, 3, agents).

    Attributes:
        pool: The pool.
        possible_agents: The names of the agents.
    """

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], *, state: bool = False, **options: Unpack[PoolOptions]
    ) -> None:
        given: Any = dict(options)
        given["extras"] = _with_numbers(given.get("extras"))
        self.pool = self._pool = remuda.Pool(hosting(partial(agents_env.build, with_state=state), env_fns), **given)
        with closed_on_error(self.pool):
            groups, self.possible_agents = self.pool.apply(agents_env.groups_in, env_ids=[0])[0]
            in_same_step = self.pool.autoreset == "same_step"
            self._agents = Agents(groups, self.possible_agents, in_same_step=in_same_step)
            self._newest = Newest(self._agents, self.pool)

    # -- the newest results ------------------------------------------------------------------------------

    @property
    def env_ids(self) -> npt.NDArray[np.int64]:
        """(n,) int64: the envs of the newest results, in the order of their rows."""
        return self._newest.env_ids

    @property
    def alive(self) -> Flags:
        """dict of (n,) bool: whether the agent is there, and acts next."""
        return self._agents.by_agent(self._newest.there)

    @property
    def final_obs(self) -> ByAgent | None:
        """A dict like the observations, of the rows that ended an episode in this step; other rows are undefined. Only
        with same-step autoreset, else None."""
        return self._newest.final_obs

    @property
    def state(self) -> Any:
        """The envs' `state()`, (n, ...), if `vector` was called with `state=True`; else None."""
        return self._newest.state

    @property
    def extras(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of the option `extras`, by name: (n, ...)."""
        return self._newest.extras

    # -- spaces ------------------------------------------------------------------------------------------

    @property
    def num_envs(self) -> int:
        """The number of envs."""
        return self.pool.num_envs

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The agents with equal spaces, which share arrays and may share a policy, by the name of the first agent."""
        return {group.name: group.agents for group in self._agents.groups}

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
                none of the envs. The values in rows of agents that are not there are ignored.
            env_ids: The envs to step; None for all.

        Returns:
            (observations, rewards, terminations, truncations, infos): dicts by agent of (n, ...) arrays, of (n,)
            float64, and of (n,) bool; the infos are those of `reset`.

        Raises:
            InvalidActionError: Actions of an agent are missing or do not fit. Nothing was sent.
            Exception: Any error of `Pool.step`.
        """
        joint, targets = self._joint(actions, env_ids)
        return self._take(self.pool.step(joint, targets))

    def send(self, actions: Mapping[str, Any], env_ids: Iterable[int] | None = None) -> None:
        """Sends actions, as for `step`, and returns at once. The errors are those of `step` and `Pool.send`."""
        joint, targets = self._joint(actions, env_ids)
        self.pool.send(joint, targets)

    def recv(
        self,
        min_envs: int | None = None,
        timeout: float | None = None,
        max_envs: int | None = None,
        order: Literal["arrival", "slot"] = "arrival",
    ) -> Results:
        """Waits for results, which `env_ids` then names. Arguments and errors: see `Pool.recv`. Returns: see `step`."""
        return self._take(self.pool.recv(min_envs, timeout, max_envs, order))

    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> ParallelRollout:
        """Returns a rollout: memory that the workers fill with `steps` steps of all envs.

        The arguments and errors are those of `Pool.rollout`.
        """
        self._newest.follow()
        self._newest.let_go()
        return ParallelRollout(self._agents, self.pool.rollout(steps, columns, parts), self._newest)

    # -- results -----------------------------------------------------------------------------------------

    def _joint(self, actions: Mapping[str, Any], env_ids: Iterable[int] | None) -> tuple[Any, Sequence[int] | None]:
        """Returns the actions as the pool expects them, and the checked env ids; None for all."""
        self._newest.follow()
        targets = self.pool._targets(env_ids)
        joint = self._agents.joint_actions(actions, targets, self._newest.may_act(targets))
        return joint, None if env_ids is None else targets

    def _take(self, batch: remuda.Batch) -> Results:
        rewards, terminations, truncations = map(self._agents.by_agent, self._newest.numbers)
        infos = AgentInfos(batch.infos, self._agents) if self._agents.in_same_step else batch.infos
        return self._agents.observations(batch.obs), rewards, terminations, truncations, infos

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

    def agent_returns(self) -> dict[str, npt.NDArray[np.float64]]:
        """Returns the sums of rewards of each agent in the last episodes of the envs, 15 of each env at most.

        `stats().returns` has the mean over agents for the same episodes. An env that is rebuilt begins again. In an
        episode in which an agent was never there, its sum is 0. The errors are those of `Pool.call`.

        Returns: dict by agent of (episodes,) float64, env by env, the latest of each env last.
        """
        of_envs = self.pool.apply_async(agents_env.returns_of, with_spares=True).result()
        rows = [row for of_env in of_envs for row in of_env]
        return self._agents.by_agent(np.reshape(rows, (-1, len(self.possible_agents))))

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


class AgentInfos(Sequence[dict[str, Any]]):
    """The infos of a batch, in which `final_obs` is a dict by agent."""

    def __init__(self, infos: Sequence[dict[str, Any]], agents: Agents) -> None:
        self._infos, self._agents = infos, agents

    def __len__(self) -> int:
        return len(self._infos)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._translated(info) for info in self._infos[index]]
        return self._translated(self._infos[index])

    def _translated(self, info: dict[str, Any]) -> dict[str, Any]:
        final = info.get("final_obs")
        return info if final is None else {**info, "final_obs": self._agents.observations(final, axis=0)}

    def __repr__(self) -> str:
        return repr(list(self))


def _with_numbers(extras: Any) -> Any:
    """Returns the option `extras` for hosts, with the column of the rewards and flags of agents."""
    own = StepColumn(numbers_of, None, None)
    if extras is None:
        return {NUMBERS: own}
    columns, _ = extras_of_hosted(extras)
    if not isinstance(columns, Mapping):
        return columns
    if NUMBERS in columns:
        raise ValueError(f"expected another name than {NUMBERS!r} in extras, which has the rewards and flags of agents")
    return {**columns, NUMBERS: own}
