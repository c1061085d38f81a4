"""From the engine's errors to what a user of Gymnasium expects to catch."""

from __future__ import annotations

from typing import NoReturn

from gymnasium import logger

from remuda._faces.originals import own_exception
from remuda.errors import EnvError


def raise_original(error: EnvError) -> NoReturn:
    """Log every failure as Gymnasium does, then raise the last env's own exception, caused by ``error``.

    Raises:
        EnvError: where that exception could not be pickled and stayed behind in its worker, or would end this
            process in silence, as ``SystemExit`` does.
    """
    for failure in error.failures:
        logger.error("Received the following error from Worker-%s - Shutting it down", failure.worker)
        logger.error("%s", failure.traceback)  # as an argument: a traceback may contain a percent sign
    logger.error("Raising the last exception back to the main process.")
    raise own_exception(error, error.failures[-1])
