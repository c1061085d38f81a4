"""ClosingPool: the pool of an evaluation, whose result outlives an error of closing."""

from __future__ import annotations

import logging
from types import TracebackType

from remuda import Pool, RemudaError


class ClosingPool:
    """A context manager that yields a pool, and closes it at the end.

    Errors of closing are logged. If they were raised, they would replace results that are complete, or a first error.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> Pool:
        return self._pool

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._pool.__exit__(kind, error, trace)
        except RemudaError as failed:
            logging.getLogger("remuda").error("%s", failed, exc_info=failed)
