"""Fills the rollouts that the driver requests from a shard, with the policy that each request names."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import ray

from remuda import Pool, Rollout
from remuda._cluster.messages import RolloutOrder
from remuda._cluster.shard.renumbering import Renumbering
from remuda._engine.rollouts.shard_rollout import ShardRollout
from remuda._training.acting import Actor, Flags, Ids, PolicyContext
from remuda._training.collect import PLAIN, Collector


class Stopped(Exception):
    """A rollout ended early, because the driver has stopped it."""


class ShardCollector:
    """Fills rollouts of a shard's pool one after another. Each continues from the current state of the envs.

    Attributes:
        numbers: The numbers of the shard's envs in the whole pool.
    """

    def __init__(self, numbers: Renumbering, generation: int) -> None:
        """`generation`: the number of actors that this shard had before this one."""
        self.numbers, self._generation = numbers, generation
        self._version, self._number, self._stopped = -1, 0, 0
        self._actor: _StoppableActor
        self._rollouts: Collector

    def stop(self, number: int) -> None:
        """Stops the rollouts of the first `number` calls of `ClusterPool.rollouts`. Any thread may call this method."""
        self._stopped = number

    def collect(self, pool: Pool, order: RolloutOrder) -> ShardRollout:
        """Returns a rollout. Its arrays are views of the pool's memory, from which Ray copies them to its object store.

        Raises Stopped, and the exceptions of the pool and the policy.
        """
        if order.number <= self._stopped:
            raise Stopped
        if order.number != self._number:
            self._begin(pool, order)
        elif order.version != self._version:
            self._actor.use(ray.get(order.policy[0]).load())
        self._number, self._version = order.number, order.version
        return self._sent(next(self._rollouts), order.version)

    def _begin(self, pool: Pool, order: RolloutOrder) -> None:
        """Loads the policy and sets the seeds for the rollouts of a call of `ClusterPool.rollouts`."""
        shard = self.numbers.shard
        seeds = np.random.SeedSequence(order.seed, spawn_key=(shard, self._generation)).spawn(2)
        policy = ray.get(order.policy[0]).load()
        _seed_process(int(seeds[1].generate_state(1)[0]))
        rng, first = np.random.default_rng(seeds[0]), self.numbers.first_env
        self._actor = _StoppableActor(policy, pool.num_envs, rng, shard=shard, first_env=first)
        self._actor.check = lambda: self._check(order.number)
        self._rollouts = Collector(pool, self._actor, order.steps, [PLAIN])  # no other way of stepping is reproducible

    def _check(self, number: int) -> None:
        if number <= self._stopped:
            raise Stopped

    def _sent(self, rollout: Rollout, version: int) -> ShardRollout:
        numbers = self.numbers
        own: dict[str, Any] = {"shard": numbers.shard, "node": numbers.node, "policy_version": version}
        own["env_ids"] = rollout.env_ids + numbers.first_env
        own["faults"] = {where: numbers.fault(fault) for where, fault in rollout.faults.items()}
        own["lost"] = tuple(map(numbers.fault, rollout.lost))
        others = [field.name for field in fields(ShardRollout) if field.name not in own]
        return ShardRollout(**own, **{name: getattr(rollout, name) for name in others})


class _StoppableActor(Actor):
    """Chooses actions with a policy. Raises Stopped at the first step after the rollout was stopped."""

    check: Callable[[], None]

    def context_for(self, env_ids: Ids, episode_starts: Callable[[], Flags]) -> dict[str, PolicyContext]:
        self.check()
        return super().context_for(env_ids, episode_starts)


def _seed_process(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's random numbers. Otherwise torch's would be the same in all shards."""
    random.seed(seed)
    np.random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)
