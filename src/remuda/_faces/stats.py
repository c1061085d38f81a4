"""Statistics beside the surface that a face imitates: the pool's, whose verdict speaks of the face."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from remuda import StateError

if TYPE_CHECKING:
    from remuda import Pool, PoolStats


class HasStats:
    """What a face gets `stats` from.

    Attributes:
        _words: How its code says what a verdict suggests (`make` and so on of :class:`remuda.Setup`), as far as that
            differs from the pool's.
    """

    _words: ClassVar[dict[str, Any]] = {}
    _pool: Pool  # a face whose pool lies elsewhere has a `_running_pool` of its own

    @property
    def _running_pool(self) -> Pool | None:
        return self._pool

    def stats(self) -> PoolStats:
        """What the envs, the workers and this program have spent their time on: a snapshot.

        ``later - earlier`` is what was done in between, and ``stats().verdict`` says what holds the throughput back.

        Raises:
            remuda.StateError: Nothing was started yet.
            remuda.ClosedError: It is closed.
        """
        pool = self._running_pool
        if pool is None:
            raise StateError(f"expected a {type(self).__name__} that runs; start it first")
        stats = pool.stats()
        return replace(stats, setup=replace(stats.setup, **self._words))
