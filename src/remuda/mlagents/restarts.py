"""How often workers are restarted: ML-Agents' quotas."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from mlagents.trainers.settings import EnvironmentSettings

from remuda.mlagents.errors import RESTARTABLE

_UNLIMITED = -1


class Restarts:
    """The restarts of all workers, and whether there may be one more.

    Args:
        settings: ``max_lifetime_restarts`` of one worker, and ``restarts_rate_limit_n`` of those within
            ``restarts_rate_limit_period_s`` seconds; -1: no limit. Looked up when they count.
        num_workers: How many there are.
        allowed: Whether there may be any.

    Attributes:
        counts: So many there were, of each worker.
        recent: When, of each worker, within the period.
    """

    def __init__(self, settings: Callable[[], EnvironmentSettings], num_workers: int, *, allowed: bool) -> None:
        self._settings, self._allowed = settings, allowed
        self.counts = [0] * num_workers
        self.recent: list[list[dt.datetime]] = [[] for _ in range(num_workers)]
        self._proven: set[int] = set()

    def prove(self, worker_id: int) -> None:
        """Its env has been reset once. One that could never be is set up wrongly, and no restart would mend that."""
        self._proven.add(worker_id)

    def why_not(self, worker_id: int, error: BaseException) -> str | None:
        """Why the worker is not to be restarted after ``error``; ``None``: it is."""
        if not self._allowed:
            return "faults='raise'"
        if not isinstance(error, RESTARTABLE):
            return f"{type(error).__name__} is none of what ML-Agents restarts for"
        if worker_id not in self._proven:
            return "its env was never reset"
        self._forget(worker_id)
        settings = self._settings()
        for name, count in (
            ("max_lifetime_restarts", self.counts[worker_id]),
            ("restarts_rate_limit_n", len(self.recent[worker_id])),
        ):
            if not _is_within(limit := getattr(settings, name), count):
                return f"{name}={limit}"
        return None

    def note(self, worker_id: int) -> None:
        self.recent[worker_id].append(dt.datetime.now())
        self.counts[worker_id] += 1

    def _forget(self, worker_id: int) -> None:
        period = dt.timedelta(seconds=self._settings().restarts_rate_limit_period_s)
        since = dt.datetime.now() - period
        self.recent[worker_id] = [at for at in self.recent[worker_id] if at > since]


def _is_within(limit: int, count: int) -> bool:
    return limit == _UNLIMITED or count < limit
