"""Fills a shard's rollouts, with the newest policy that was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remuda import Pool, collect
from remuda._cluster.policies import Policies
from remuda._cluster.renumbering import Renumbering
from remuda._engine.rollouts.shard_rollout import ShardRollout

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

    def renumber(self, numbers: Renumbering) -> None:
        """Its envs have other numbers in the whole from now on."""
        self._numbers = numbers

    def collect(self, pool: Pool, steps: int, at_least: int) -> ShardRollout:
        """A rollout of so many steps, by a policy that is not older than that version. Raises what the pool raises.

        Its arrays are views of the pool's memory, from which Ray copies them into its object store.
        """
        act = self.policies.newest(at_least)
        rollout = next(collect(pool, act, steps=steps, parts=1))  # in one order: who is ready first would be chance
        numbers = self._numbers
        return ShardRollout(
            shard=numbers.shard,
            node=numbers.node,
            policy_version=self.policies.version,
            env_ids=rollout.env_ids + numbers.first_env,
            obs=rollout.obs,
            actions=rollout.actions,
            rewards=rollout.rewards,
            terminations=rollout.terminations,
            truncations=rollout.truncations,
            valid=rollout.valid,
            episode_starts=rollout.episode_starts,
            final_obs=rollout.final_obs,
            infos=rollout.infos,
            extras=rollout.extras,
            columns=rollout.columns,
            faults={where: numbers.fault(fault) for where, fault in rollout.faults.items()},
            lost=tuple(map(numbers.fault, rollout.lost)),
        )


def seeds_given(pool: Pool, bases: dict[int, Any]) -> npt.NDArray[np.int64]:
    """(n,): how many seeds each env has been given of those that follow from its own, by predecessors too."""
    counts = list[int]()
    for env in range(pool.num_envs):
        number, latest, _ = pool._engine.running.slots.seeded(env)
        here = latest + 1 if number else 0  # none, where it was put into a state and not reset since
        counts.append(here + getattr(bases.get(env), "given", 0))
    return np.array(counts, np.int64)
