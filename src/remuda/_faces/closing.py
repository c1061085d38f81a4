"""Closes pools as the faces do: after a failed constructor, and with errors of envs logged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from remuda import EnvError, Pool, WorkerDiedError


@contextmanager
def closed_on_error(pool: Pool) -> Iterator[None]:
    """Kills the workers of a pool if a face cannot take the pool over."""
    try:
        yield
    except BaseException:
        pool.close(terminate=True)
        raise


@contextmanager
def log_close_errors() -> Iterator[None]:
    """Logs what envs raise and deaths of workers instead of raising them, as some of the imitated systems do."""
    try:
        yield
    except (EnvError, WorkerDiedError) as error:
        logging.getLogger("remuda").error("%s", error, exc_info=error)
