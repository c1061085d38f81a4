"""Translates the engine's errors into those that users of a face catch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from remuda.errors import BrokenPoolError, ClosedError, EnvError, Failure, RemudaError

P = ParamSpec("P")
T = TypeVar("T")


class Translation:
    """A decorator of functions of a face, which raise the face's errors instead of the engine's.

    Args:
        of: Returns the face's error, with its cause, for an error of the engine; or the same error, if it stays.
    """

    def __init__(self, of: Callable[[RemudaError], BaseException]) -> None:
        self.of = of

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def translating(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except RemudaError as error:
                self.raise_for(error)

        return translating

    def raise_for(self, error: RemudaError) -> NoReturn:
        """Raises the face's error while the engine's is handled, where the decorator's call would cost too much."""
        translated = self.of(error)
        if translated is error:
            raise error
        raise translated from translated.__cause__


def by_kind(*kinds: type[RemudaError], name: str) -> Translation:
    """Returns the translation into classes that derive from the engine's.

    Args:
        *kinds: Each stands for the first of its bases, which is the engine's. Other errors stay.
        name: The face's word for "the pool" in errors: the users close it and make a new one.
    """
    kind_of: dict[type[RemudaError], type[RemudaError]] = {kind.__bases__[0]: kind for kind in kinds}

    def of(error: RemudaError) -> RemudaError:
        kind = kind_of.get(type(error))
        if kind is None:
            return error
        translated = kind.__new__(kind, *error.args)  # without the constructor, because each has arguments of its own
        translated.__cause__ = error.__cause__
        translated.__dict__.update(error.__dict__)
        names_pool = isinstance(error, (BrokenPoolError, ClosedError))
        translated.args = tuple(
            str(arg).replace("the pool", f"the {name}") if names_pool else arg for arg in error.args
        )
        return translated

    return Translation(of)


def caused(error: Exception, cause: BaseException) -> Exception:
    """Returns an error with its cause."""
    error.__cause__ = cause
    return error


def own_exception(error: EnvError, failure: Failure) -> Exception:
    """Returns what the env raised in one of an error's failures; its cause is ``error``, with the worker's traceback.

    Returns ``error`` if that exception could not be pickled and stayed in its worker, or would end this process
    silently, as ``SystemExit`` does.
    """
    original = failure.exception
    if not isinstance(original, Exception):
        return error
    error.__cause__ = original.__cause__  # the remote traceback; ``original`` itself would make a circle
    return caused(original, error)
