"""Limits the restarts of workers by ML-Agents' quotas."""

from __future__ import annotations

import datetime as dt

from mlagents.trainers.settings import EnvironmentSettings

from remuda.mlagents.errors import RESTARTABLE

_UNLIMITED = -1


class Restarts:
    """Counts the restarts of each worker, and decides whether it may be restarted again.

    Args:
        num_workers: The number of workers.
        allowed: Whether workers are restarted at all.

    Attributes:
        counts: The number of restarts of each worker.
        recent: The times of each worker's restarts, within the period of the quota.
    """

    def __init__(self, num_workers: int, *, allowed: bool) -> None:
        self._allowed = allowed
        self.counts = [0] * num_workers
        self.recent: list[list[dt.datetime]] = [[] for _ in range(num_workers)]
        self._proven: set[int] = set()

    def prove(self, worker_id: int) -> None:
        """Notes that a worker's env was reset. Later failures of the worker are then not due to the env's setup."""
        self._proven.add(worker_id)

    def why_not(self, worker_id: int, error: BaseException, quotas: EnvironmentSettings) -> str | None:
        """Returns the reason why a worker must not be restarted after an error; ``None`` if it may be restarted.

        Args:
            quotas: For each worker, ``max_lifetime_restarts``, and ``restarts_rate_limit_n`` within
                ``restarts_rate_limit_period_s`` seconds; -1: no limit.
        """
        if not self._allowed:
            return "faults='raise'"
        if not isinstance(error, RESTARTABLE):
            return f"{type(error).__name__} is none of what ML-Agents restarts for"
        if worker_id not in self._proven:
            return "its env was never reset"
        since = dt.datetime.now() - dt.timedelta(seconds=quotas.restarts_rate_limit_period_s)
        self.recent[worker_id] = [at for at in self.recent[worker_id] if at > since]
        for name, count in (
            ("max_lifetime_restarts", self.counts[worker_id]),
            ("restarts_rate_limit_n", len(self.recent[worker_id])),
        ):
            limit = getattr(quotas, name)
            if limit != _UNLIMITED and count >= limit:
                return f"{name}={limit}"
        return None

    def note(self, worker_id: int) -> None:
        """Counts a restart."""
        self.recent[worker_id].append(dt.datetime.now())
        self.counts[worker_id] += 1
