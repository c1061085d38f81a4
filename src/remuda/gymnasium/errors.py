"""Translates the engine's errors into those that users of Gymnasium catch."""

from __future__ import annotations

import functools

from gymnasium import logger

from remuda._faces.translation import Translation, caused, own_exception
from remuda.errors import EnvError, RemudaError, SpaceMismatchError


def _translate(error: RemudaError, final: tuple[str, ...]) -> Exception:
    """Returns the exception to raise instead of ``error``: the env's own, if an env raised.

    Exceptions of envs are logged, as Gymnasium does. Those in calls are not: programs handle a missing attribute, and
    the env continues its episode.

    ``final``: operations after which the worker of an env that raised has ended.
    """
    if isinstance(error, SpaceMismatchError):
        return caused(RuntimeError(str(error)), error)
    if not isinstance(error, EnvError):
        return error
    if any(failure.operation != "call" for failure in error.failures):
        _log(error, final)
    return own_exception(error, error.failures[-1])


def _log(error: EnvError, final: tuple[str, ...]) -> None:
    for failure in error.failures:
        ended = " - Shutting it down" if failure.operation in final else ""
        logger.error("Received the following error from Worker-%s%s", failure.worker, ended)
        logger.error("%s", failure.traceback)  # "%s", because the traceback may contain a percent sign
    logger.error("Raising the last exception back to the main process.")


translated = Translation(functools.partial(_translate, final=("build", "close")))
"""Decorates functions that raise the engine's errors."""

translated_in_replace = Translation(functools.partial(_translate, final=()))
"""Decorates functions that build envs in workers that continue after a failure."""
