"""Context managers of faces: one closes the pool after a failed constructor, one logs errors of closing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from remuda import EnvError, Pool, WorkerDiedError


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
