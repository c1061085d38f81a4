"""The pool beneath a face: what users see of it, the results in flight in it, and its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, SupportsIndex

from remuda import EnvError, Part, Pool, StateError, WorkerDiedError
from remuda._copying import not_copied
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


class HasNoPool(HasStats):
    """The base of faces that do not give users access to their pool: `stats` works, but reading `pool` raises an error.

    Attributes:
        _why_no_pool: The reason.
    """

    _why_no_pool: ClassVar[str]

    @property
    def pool(self) -> NoReturn:
        """Raises an error, because users of the face have no access to its pool.

        Raises:
            NotImplementedError: Always, with the reason.
        """
        raise NotImplementedError(
            "expected remuda.gymnasium, remuda.sb3 or a remuda.Pool for rollouts, states, replace and remuda.evaluate, "
            f"got a {type(self).__name__}: {self._why_no_pool}"
        )


def drop_pending(envs: Part) -> None:
    """Waits for the results in flight, and drops them. If none is, a fault that was not raised yet is not dropped."""
    if envs.pending:
        envs.discard()


@contextmanager
def closed_on_error(pool: Pool) -> Iterator[None]:
    """Kills the workers of a pool if the rest of a face's constructor fails."""
    try:
        yield
    except BaseException:
        pool.close(terminate=True)
        raise


@contextmanager
def log_close_errors() -> Iterator[None]:
    """Logs exceptions of envs and deaths of workers during `close` instead of raising them."""
    try:
        yield
    except (EnvError, WorkerDiedError) as error:
        logging.getLogger("remuda").error("%s", error, exc_info=error)
