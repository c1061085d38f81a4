"""Raises the env's own exception, for faces whose users catch that."""

from __future__ import annotations

from remuda import EnvError
from remuda.errors import Failure


def own_exception(error: EnvError, failure: Failure) -> Exception:
    """Return what the env raised in one of an error's failures; its cause is ``error``, with the worker's traceback.

    Return ``error`` where that exception could not be pickled and stayed behind in its worker, or would end this
    process in silence, as ``SystemExit`` does.
    """
    original = failure.exception
    if not isinstance(original, Exception):
        return error
    error.__cause__ = original.__cause__  # the remote traceback; ``original`` itself would make a circle
    original.__cause__ = error
    return original
