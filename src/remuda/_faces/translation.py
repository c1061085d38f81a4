"""Translates remuda's errors into those that users of a face catch."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, ParamSpec, TypeVar

from remuda.errors import BrokenPoolError, ClosedError, EnvError, Failure, RemudaError

P = ParamSpec("P")
T = TypeVar("T")


class Translation:
    """A decorator of a face's functions: they raise the face's errors instead of remuda's.

    Args:
        of: Returns the face's error, with its cause, for an error of remuda; the same error if it stays.
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

    def raise_for(self, error: BaseException) -> NoReturn:
        """Raises the face's error instead of remuda's; others stay. Fast code uses this: the decorator is slower."""
        translated = self.of(error) if isinstance(error, RemudaError) else error
        if translated is error:
            raise error
        raise translated from translated.__cause__


def by_kind(*kinds: type[RemudaError], name: str) -> Translation:
    """Returns a `Translation` that replaces each error of remuda by the face's subclass of that error.

    Args:
        *kinds: The face's classes. Each replaces its first base, a class of remuda. Other errors stay.
        name: The face's word for "the pool" in messages.
    """
    kind_of: dict[type[RemudaError], type[RemudaError]] = {kind.__bases__[0]: kind for kind in kinds}

    def of(error: RemudaError) -> RemudaError:
        kind = kind_of.get(type(error))
        if kind is None:
            return error
        translated = kind.__new__(kind, *error.args)  # skips the constructors, which have different arguments
        translated.__cause__ = error.__cause__
        translated.__dict__.update(error.__dict__)
        names_pool = isinstance(error, (BrokenPoolError, ClosedError))
        translated.args = tuple(
            str(arg).replace("the pool", f"the {name}") if names_pool else arg for arg in error.args
        )
        return translated

    return Translation(of)


@contextmanager
def in_words_of(words: Mapping[str, str]) -> Iterator[None]:
    """A context manager and decorator: errors about arguments have the face's words.

    Args:
        words: By remuda's name of an option, or `repr` of a value, that of the face.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        if not words:
            raise
        ours = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})(?!\w)")
        error.args = tuple(
            ours.sub(lambda found: words[found[0]], arg) if isinstance(arg, str) else arg for arg in error.args
        )
        raise


def caused(error: Exception, cause: BaseException) -> Exception:
    """Sets the cause of an error, and returns the error."""
    error.__cause__ = cause
    return error


def is_of_call(error: RemudaError) -> bool:
    """Returns whether envs raised the error in calls only. Errors in calls do not end an episode."""
    return isinstance(error, EnvError) and all(failure.operation == "call" for failure in error.failures)


def original_of(failure: Failure) -> Exception | None:
    """Returns the exception that an env raised.

    Returns None if it could not be pickled, or would end this process silently (``SystemExit``).
    """
    return failure.exception if isinstance(failure.exception, Exception) else None


def own_exception(error: EnvError, failure: Failure) -> Exception:
    """Returns the exception that an env raised. Its cause becomes ``error``, which has the worker's traceback.

    Returns ``error`` if there is no such exception to raise: see `original_of`.
    """
    original = original_of(failure)
    if original is None:
        return error
    error.__cause__ = original.__cause__  # the remote traceback; not ``original``, which gets ``error`` as its cause
    return caused(original, error)
