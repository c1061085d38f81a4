"""From the engine's errors to what a user of Gymnasium expects to catch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gymnasium import Env, logger

from remuda import Pool, PoolOptions
from remuda._faces.originals import own_exception
from remuda.errors import EnvError, SpaceMismatchError

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11

_FINAL = ("build", "close")  # after which there are no workers


def raise_original(error: EnvError, final: tuple[str, ...] = _FINAL) -> NoReturn:
    """Log every failure as Gymnasium does, then raise the last env's own exception, caused by ``error``.

    ``final``: operations after which the worker of an env that raised is no more.

    Raises:
        EnvError: where that exception could not be pickled and stayed behind in its worker, or would end this
            process in silence, as ``SystemExit`` does.
    """
    for failure in error.failures:
        ended = " - Shutting it down" if failure.operation in final else ""  # else the worker lives on
        logger.error("Received the following error from Worker-%s%s", failure.worker, ended)
        logger.error("%s", failure.traceback)  # as an argument: a traceback may contain a percent sign
    logger.error("Raising the last exception back to the main process.")
    raise own_exception(error, error.failures[-1])


def start_pool(env_fns: Sequence[Callable[[], Env[Any, Any]]], **options: Unpack[PoolOptions]) -> Pool:
    """Start a pool, or raise what Gymnasium's users expect where that fails.

    Raises:
        RuntimeError: the envs' spaces disagree.
        Exception: whatever an env factory raised.
    """
    try:
        return Pool(env_fns, **options)
    except EnvError as error:
        raise_original(error)
    except SpaceMismatchError as error:
        raise RuntimeError(str(error)) from error
