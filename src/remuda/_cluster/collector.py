"""A shard's rollouts: which policy acts, where the envs are, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remuda import Batch, Pool
from remuda._cluster.filling import Filling
from remuda._cluster.policies import Policies
from remuda._cluster.renumbering import Renumbering
from remuda._engine.pool.shard_rollout import ShardRollout

if TYPE_CHECKING:
    import numpy.typing as npt


class Collector:
    """Fills rollouts of a shard's pool, one after another, each from where the envs are.

    Attributes:
        policies: Those that act.
    """

    def __init__(self, numbers: Renumbering) -> None:
        self.policies = Policies()
        self._numbers = numbers
        self._over: npt.NDArray[np.bool_] | None = None
        self._begun: npt.NDArray[np.bool_] | None = None

    def note(self, pool: Pool, batch: Batch, *, resets: bool) -> None:
        """Results that rollouts have no part in."""
        over, begun = self._where(pool)
        ends = (batch.terminated | batch.truncated) & (pool.autoreset == "next_step")
        begun[batch.env_ids] = resets | over[batch.env_ids]
        over[batch.env_ids] = ends

    def _where(self, pool: Pool) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        if self._over is None or self._begun is None:
            self._over, self._begun = np.zeros(pool.num_envs, bool), np.zeros(pool.num_envs, bool)
        return self._over, self._begun

    def collect(self, pool: Pool, steps: int, at_least: int) -> ShardRollout:
        """A rollout of so many steps, by a policy that is not older than that version. Raises what the pool raises."""
        act = self.policies.newest(at_least)
        over, begun = self._where(pool)
        filling = Filling(pool, steps, over, begun)
        filling.fill(act)
        self._over, self._begun = filling.over, filling.starts[-1].copy()
        numbers = self._numbers
        return ShardRollout(
            shard=numbers.shard,
            node=numbers.node,
            policy_version=self.policies.version,
            env_ids=pool.env_ids + numbers.first_env,
            obs=filling.obs,
            actions=filling.actions,
            rewards=filling.rewards,
            terminations=filling.terminations,
            truncations=filling.truncations,
            valid=filling.valid,
            episode_starts=filling.starts,
            final_obs=filling.final_obs,
            infos=filling.infos,
            columns=filling.columns,
            faults={where: numbers.fault(fault) for where, fault in filling.faults.items()},
        )


def seeds_given(pool: Pool, bases: dict[int, Any]) -> npt.NDArray[np.int64]:
    """(n,): how many seeds each env has been given of those that follow from its own, by predecessors too."""
    hub_of = pool._engine.running
    given = [getattr(bases.get(env), "given", 0) for env in range(pool.num_envs)]
    return np.array([hub_of.hub.seeded(env)[1] + 1 + given[env] for env in range(pool.num_envs)], np.int64)
