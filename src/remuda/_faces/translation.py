"""Translates the engine's errors into those of a face, to be caught where its users have always caught theirs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from remuda.errors import BrokenPoolError, ClosedError, RemudaError

P = ParamSpec("P")
T = TypeVar("T")
Error = TypeVar("Error", bound=RemudaError)


class Translation:
    """From the engine's errors to a face's.

    Args:
        kinds: The face's. Each stands for the first of its bases, which is the engine's; what none stands for stays.
        name: Of what the face's users close and make anew, where the engine speaks of its pool.
    """

    def __init__(self, *kinds: type[RemudaError], name: str) -> None:
        self._name = name
        self._kinds: dict[type[RemudaError], type[RemudaError]] = {kind.__bases__[0]: kind for kind in kinds}

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorates a function of the face: what it raises of the engine's comes as the face's, with the same cause."""

        @functools.wraps(function)
        def translating(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except RemudaError as error:
                self.raise_for(error)

        return translating

    def raise_for(self, error: RemudaError) -> NoReturn:
        """Raises the face's error while the engine's is handled, where the decorator's call would cost too much."""
        told = self.of(error)
        if told is error:
            raise error
        raise told from error.__cause__

    def of(self, error: RemudaError) -> RemudaError:
        """The face's error, with the same attributes; the same one where there is no other."""
        kind = self._kinds.get(type(error))
        if kind is None:
            return error
        told = _as(kind, error)
        if isinstance(error, (BrokenPoolError, ClosedError)):
            told.args = tuple(str(arg).replace("the pool", f"the {self._name}") for arg in error.args)
        return told


def _as(kind: type[Error], error: RemudaError) -> Error:
    """Past the constructors, each of which has arguments of its own."""
    told = kind.__new__(kind, *error.args)
    told.args = error.args
    told.__dict__.update(error.__dict__)
    return told
