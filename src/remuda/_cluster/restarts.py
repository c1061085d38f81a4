"""Whether a shard that has died is built anew, and when."""

from __future__ import annotations

import time
from collections.abc import Callable

from remuda import FaultPolicy
from remuda._cluster.station import Station
from remuda._engine.running.changes import Changes
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
        changes = Changes()
        faults = {env: _fault(env, station, death, where(env)) for env in station.share.env_ids}
        limit = self._quota.charge(list(faults.values()), changes)
        if limit is not None:
            raise limit from death
        delay = max(0.0, self._quota.next_restart(station.share.shard, changes) - time.monotonic())
        changes.make()
        return faults, delay


def _fault(env: int, station: Station, death: ShardDiedError, where: EnvProgress) -> Fault:
    """What the death of its shard is to an env."""
    return Fault(
        env_id=env,
        worker=death.worker + _host(env, station),
        kind="death",
        operation=death.operation,
        where=where,
        error=death,
        shared=env != station.share.first,
        shard=death.shard,
        node=death.node,
    )


def _host(env: int, station: Station) -> int:
    """The number of an env's worker in its shard."""
    workers = () if station.report is None else station.report.workers
    return next((number for number, (_, envs) in enumerate(workers) if env - station.share.first in envs), 0)
