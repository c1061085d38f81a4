"""The methods of a pool on a cluster. Any other pool raises an error that names the `backend` they need."""

from __future__ import annotations

from typing import Any

from remuda._engine.rollouts.shard_rollout import ShardRollouts


class OnACluster:
    """The methods that need envs on other machines."""

    backend: str

    def rollouts(self, policy: Any, steps: int = 128, in_flight: int = 2, *, seed: int | None = None) -> ShardRollouts:
        """Makes shards fill rollouts with a policy that acts beside the envs, and hands them out::

            for rollout in pool.rollouts(policy, steps=128):
                learner.update(rollout)
                pool.publish(policy)

        One message brings steps x n transitions. Envs continue from where they are. Envs that have not been reset are
        reset first, and so are all envs that earlier rollouts have stepped.

        Args:
            policy: As in `remuda.collect`: a callable, an object with a method `act`, or a torch module, with or
                without a parameter `turn`. It gets the observations of a shard's envs. It is pickled with all that it
                refers to; tensors on a GPU are copied to the CPU, and a module is moved to the GPU of its shard, if the
                shard has one. Before the first rollout, each shard seeds the global random numbers of its process
                (`random`, NumPy, torch).
            steps: T of each rollout.
            in_flight: The number of rollouts of each shard that are under way or wait for the learner. With 2, a shard
                fills one while the learner works on another. With 1, it waits for the learner.
            seed: The seed of random numbers of the policy, from 0 up; None: a random one. Each shard has its own
                stream.

        Returns: An iterator of `ShardRollout`, and a context manager that ends it.

        Raises:
            NotImplementedError: The envs are on this machine (`backend`).
            ValueError: A number below 1, or spaces that are not made of arrays.
            TypeError: `policy` is no policy.
            StateError: An env is in flight.
        """
        raise NotImplementedError(self._on_a_cluster("rollouts"))

    def publish(self, policy: Any) -> int:
        """Replaces the policy of `rollouts`, attributes included.

        It goes into Ray's object store once, however many shards there are. Rollouts that are asked for from now on use
        it. A shard is asked for its next rollout when the learner takes the one after: so the policy of a rollout
        misses at most shards x in_flight publications, and with one shard and `in_flight=1` none.

        Returns: The version of the policy, which `ShardRollout.policy_version` shows.

        Raises:
            NotImplementedError: The envs are on this machine.
            TypeError: `policy` is no policy.
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
