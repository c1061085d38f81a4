"""The method `stats` of the faces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from remuda import StateError
from remuda._copying import not_copied

if TYPE_CHECKING:
    from remuda import Pool
    from remuda.stats import PoolStats


class HasStats:
    """The base of faces, which gives them the method `stats`."""

    _pool: Pool  # a face that has no `_pool` overrides `_running_pool`

    @property
    def _running_pool(self) -> Pool | None:
        return self._pool

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Raises TypeError once there are workers, because workers cannot be copied."""
        if self._running_pool is None:
            return super().__reduce_ex__(protocol)
        raise not_copied(self)

    def stats(self) -> PoolStats:
        """Returns a snapshot of the time that the envs, the workers and this program have spent, by activity.

        ``later - earlier`` has the times between two snapshots, and ``stats().verdict`` names the limit of the
        throughput.

        Raises:
            remuda.StateError: The workers have not been started yet.
            remuda.ClosedError: It is closed.
        """
        pool = self._running_pool
        if pool is None:
            raise StateError(f"expected a {type(self).__name__} that runs; start it first")
        return pool.stats()
