"""Translates the engine's errors into those that users of Gymnasium catch."""

from __future__ import annotations

from gymnasium import logger

from remuda._faces.translation import Translation, caused, is_of_call, own_exception
from remuda.errors import EnvError, RemudaError, SpaceMismatchError


def _translate(error: RemudaError) -> Exception:
    """Returns the exception to raise instead of ``error``: the env's own, if an env raised.

    Exceptions of envs are logged, as Gymnasium does. Those in calls are not: programs handle a missing attribute, and
    the env continues its episode.
    """
    if isinstance(error, SpaceMismatchError):
        return caused(RuntimeError(str(error)), error)
    if not isinstance(error, EnvError):
        return error
    if not is_of_call(error):
        for failure in error.failures:
            logger.error("Received the following error from Worker-%s", failure.worker)
            logger.error("%s", failure.traceback)  # "%s", because the traceback may contain a percent sign
        logger.error("Raising the last exception back to the main process.")
    return own_exception(error, error.failures[-1])


translated = Translation(_translate)
"""Decorates functions that raise the engine's errors."""
