"""From the engine's errors to what a user of Gymnasium expects to catch."""

from __future__ import annotations

from typing import NoReturn

from gymnasium import logger

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
    original = error.failures[-1].exception
    if not isinstance(original, Exception):
        raise error
    error.__cause__ = original.__cause__  # the remote traceback; ``original`` itself would make a circle
    raise original from error
