"""The methods of a pool on a cluster. Any other pool raises an error that names the `backend` they need."""

from __future__ import annotations

from typing import Any

from remuda._engine.rollouts.shard_rollout import ShardRollouts


class OnACluster:
    """The methods that need envs on other machines."""

    backend: str

    def rollouts(self, policy: Any, steps: int = 128, in_flight: int = 2) -> ShardRollouts:
        """Has shards fill rollouts with a policy that acts beside the envs, and hands them out as they come.

            for rollout in pool.rollouts(policy, steps=128):
                learner.update(rollout)
                pool.publish(policy)

        One message brings steps x n transitions. Envs go on from where they are; those that have not been reset are,
        and so are all that other rollouts have stepped before.

        Args:
            policy: Gets the observations of a shard's envs, batched as `Batch.obs` is, and returns their actions, or
                (actions, a dict of arrays to be kept beside them). Any callable, or what has a method `act`. A torch
                module gets tensors, and may return some. It is pickled.
            steps: T of each rollout.
            in_flight: So many of each shard are under way or wait for you. With 2, a shard fills one while you learn
                from another; with 1 it waits until you take it.

        Raises:
            NotImplementedError: The envs are on this machine (`backend`).
            ValueError: A number below 1, or spaces that are not made of arrays.
            TypeError: What is no policy.
            StateError: An env is in flight.
        """
        raise NotImplementedError(self._on_a_cluster("rollouts"))

    def publish(self, policy: Any) -> int:
        """Has rollouts that begin from now on use another policy. Of a torch module of the same class only the state is
        sent. It goes into Ray's object store once, however many shards there are.

        Returns: Its version, which those rollouts tell.
        Raises:
            NotImplementedError: The envs are on this machine.
            TypeError: What is no policy.
        """
        raise NotImplementedError(self._on_a_cluster("publish"))

    def resize(self, shards: int, timeout: float | None = None) -> None:
        """Divides the envs of a cluster among more shards, or fewer, for machines that have come or are to go.

        All envs are built anew, beside those that are there, before any takes its place: what cannot be built, or finds
        no room in time, leaves the pool as it was. Where the cluster scales by itself, the shards that
        wait for room are what makes it grow.

        Env ids, seeds, options of resets and lasting attributes go on. Episodes under way are cut off: the next result
        of their envs is truncated, with `info["resized"]`. Who wants to go on from where they are takes their states
        first, and puts them back:

            states = pool.get_state()
            pool.resize(8)
            batch = pool.set_state(states)

        Parts of the pool are no more, as after `split(1)`. Figures in `stats()` begin anew.

        Args:
            shards: From 1 to the number of factories.
            timeout: Seconds to wait for room and builds; None: `start_timeout`.

        Raises:
            NotImplementedError: The envs are on this machine (`backend`).
            ValueError: Another number; or a `placement` other than "spread".
            StateError: An env is in flight, or rollouts are under way: close them first.
            StartTimeoutError: There was no room in time. Nothing has changed.
            ShardDiedError: A shard died meanwhile. What `faults` says has been done; call it again.
            BrokenPoolError, ClosedError: It can never be done.
        """
        raise NotImplementedError(self._on_a_cluster("resize"))

    def _on_a_cluster(self, what: str) -> str:
        return (
            f"expected backend=remuda.Ray(...) for {what}, got {self.backend!r}: there the policy acts beside the envs"
        )
