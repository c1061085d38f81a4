"""The methods of a pool on a cluster. In any other pool they raise an error that names the `backend` to use."""

from __future__ import annotations

from typing import Any

from remuda._engine.rollouts.shard_rollout import ShardRollouts


class OnACluster:
    """The methods of a pool that need envs on other machines."""

    backend: str

    def rollouts(self, policy: Any, steps: int = 128, in_flight: int = 2, *, seed: int | None = None) -> ShardRollouts:
        """Makes shards fill rollouts with a policy that runs in the shards, and returns the rollouts::

            for rollout in pool.rollouts(policy, steps=128):
                learner.update(rollout)
                pool.publish(policy)

        One message carries steps x n transitions. Envs continue from where they are. Envs that have not been reset are
        reset first, and so are all envs that earlier rollouts have stepped.

        Args:
            policy: See `remuda.collect`: a callable, an object with a method `act`, or a torch module, with or
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
            TypeError: `policy` is not such an object.
            StateError: An env is in flight.
        """
        raise NotImplementedError(self._on_a_cluster("rollouts"))

    def publish(self, policy: Any) -> int:
        """Replaces the policy with which shards fill `rollouts`, including its attributes.

        The policy is put into Ray's object store once, for all shards. Rollouts that are requested from now on use it.
        When the learner has taken a rollout and requests the next, the shard of the first is sent another request. So
        the policy of a rollout is at most shards x in_flight publications old. With one shard and `in_flight=1` it is
        the latest.

        Returns: The version of the policy, which `ShardRollout.policy_version` shows.

        Raises:
            NotImplementedError: The envs are on this machine.
            TypeError: `policy` is not an object that `rollouts` takes.
        """
        raise NotImplementedError(self._on_a_cluster("publish"))

    def resize(self, shards: int, timeout: float | None = None) -> None:
        """Divides the envs of a cluster among more or fewer shards, for machines that were added or will be removed.

        All envs are rebuilt, beside the old ones, before any takes its place. If an env cannot be built, or there is
        no room in time, the pool stays as it was. If the cluster scales automatically, shards that wait for room make
        it grow.

        Env ids, seeds, options of resets and lasting attributes continue. Current episodes are cut off: the next
        result of their envs is truncated, with `info["resized"]`. To continue the episodes, take the states first and
        put them back:

            states = pool.get_state()
            pool.resize(8)
            batch = pool.set_state(states)

        Parts of the pool become invalid, as after `split(1)`. Figures in `stats()` begin again.

        Args:
            shards: The number of shards, from 1 to the number of factories.
            timeout: Seconds to wait for room and builds; None: `start_timeout`.

        Raises:
            NotImplementedError: The envs are on this machine (`backend`).
            ValueError: `shards` is out of range, or `placement` is not "spread".
            StateError: An env is in flight, or rollouts are open: close them first.
            StartTimeoutError: There was no room in time. Nothing has changed.
            ShardDiedError: A shard died meanwhile. The policy of `faults` was applied; call `resize` again.
            BrokenPoolError, ClosedError: The pool is broken or closed.
        """
        raise NotImplementedError(self._on_a_cluster("resize"))

    def _on_a_cluster(self, what: str) -> str:
        return (
            f"expected backend=remuda.Ray(...) for {what}, got {self.backend!r}: there the policy acts beside the envs"
        )
