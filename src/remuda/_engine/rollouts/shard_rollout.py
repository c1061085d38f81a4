"""Rollouts that shards fill with a policy that runs in the shards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda._engine.rollouts.advantages import HasAdvantages
from remuda.errors import Fault

Flags = npt.NDArray[np.bool_]


@dataclass
class ShardRollout(HasAdvantages):
    """T steps of the n envs of a shard, by a policy that ran in the shard. `ClusterPool.rollouts` iterates over these.

    Arrays are contiguous. If the shard is on the learner's machine, they are views of Ray's object store, and you must
    not write to them: copy what you want to change. From another machine they were transferred once.

    Attributes:
        shard, node: The shard that filled it, and the shard's node.
        policy_version: The version of the policy that acted in all steps: 0 for the first policy, and one more with
            each `ClusterPool.publish`.
        steps, num_envs, env_ids, obs, actions, rewards, terminations, truncations, final_obs, extras, valid,
            episode_starts, infos, faults: See `Rollout`. An env id is that of the pool.
        columns: dict of (T, n, ...): the values that the policy returned beside its actions.
        lost: The faults that cut episodes off before the first row: a worker or the shard died since its last rollout.
            Their envs begin a new episode.
    """

    shard: int
    node: str
    policy_version: int
    env_ids: npt.NDArray[np.int64]
    obs: Any
    actions: Any
    rewards: npt.NDArray[np.float64]
    terminations: Flags
    truncations: Flags
    valid: Flags
    episode_starts: Flags
    final_obs: Any = None
    infos: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    faults: dict[tuple[int, int], Fault] = field(default_factory=dict)
    lost: tuple[Fault, ...] = ()

    @property
    def steps(self) -> int:
        """T."""
        return len(self.rewards)

    @property
    def num_envs(self) -> int:
        """n."""
        return len(self.env_ids)

    def __len__(self) -> int:
        return self.steps

    def __repr__(self) -> str:
        what = f"{self.steps} steps of {self.num_envs} envs"
        return f"<Rollout of {what}, shard {self.shard}, policy {self.policy_version}>"


class ShardRollouts(Iterator[ShardRollout]):
    """An iterator over the rollouts of all shards, which `ClusterPool.rollouts` returns.

        for rollout in pool.rollouts(policy, steps=128):
            learner.update(rollout)
            pool.publish(policy)

    The rollout that was requested first is returned first, once it is done. When a rollout has been taken and the next
    one is requested, its shard starts another. So each shard has `in_flight` rollouts that are being filled or are
    waiting, and no shard waits for a slow one.

    The iterator has no end. Leave a loop that holds the only reference, call `close`, or use it as a context manager.
    Then shards stop at their next step, and all envs must be reset before they are stepped.
    """

    @abstractmethod
    def __next__(self) -> ShardRollout:
        """Waits for the next rollout and returns it.

        Raises:
            EnvError, WorkerDiedError, RestartLimitError: An env failed, and the pool's `faults` do not restart it.
            ClosedError: The pool is closed.
            Exception: What the policy raised.
        """

    @abstractmethod
    def close(self) -> None:
        """Stops the shards at their next step. Rollouts that were not taken are dropped."""

    def __enter__(self) -> ShardRollouts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
