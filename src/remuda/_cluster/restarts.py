"""Whether a shard that has died is built anew, and when."""

from __future__ import annotations

import time
from collections.abc import Callable

from remuda import FaultPolicy
from remuda._cluster.station import Station
from remuda._engine.supervision.changes import Changes
from remuda._engine.supervision.quota import Quota
from remuda.errors import EnvProgress, Fault, ShardDiedError


class Restarts:
    """The pool's fault policy, and how often it has come to that."""

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy, self._quota = policy, Quota(policy)

    def allow(
        self, station: Station, death: ShardDiedError, where: Callable[[int], EnvProgress]
    ) -> tuple[dict[int, Fault], float]:
        """Takes a death to the record.

        Args:
            where: How far an env had come.

        Returns:
            The faults of its envs, by env, and for how many seconds the successor is to wait.

        Raises:
            ShardDiedError: This one, where nobody is restarted.
            RestartLimitError: It died too often.
        """
        if not self._policy.restarts:
            raise death
        changes, share = Changes(), station.share
        faults = {
            env: Fault(
                env_id=env,
                worker=death.worker,
                kind="death",
                operation=death.operation,
                where=where(env),
                error=death,
                shared=env != share.first,
                shard=death.shard,
                node=death.node,
            )
            for env in share.env_ids
        }
        limit = self._quota.charge(list(faults.values()), changes)
        if limit is not None:
            raise limit from death
        delay = max(0.0, self._quota.next_restart(share.shard, changes) - time.monotonic())
        changes.make()
        return faults, delay
