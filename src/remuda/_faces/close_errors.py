"""Logs errors of closing envs instead of raising them, as the originals of some faces do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from remuda import EnvError, WorkerDiedError


@contextmanager
def log_close_errors() -> Iterator[None]:
    """Logs what envs raised, and deaths of workers: who closes wants to be rid of them."""
    try:
        yield
    except (EnvError, WorkerDiedError) as error:
        logging.getLogger("remuda").error("%s", error, exc_info=error)
