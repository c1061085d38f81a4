"""A decorator for methods of parts that threads may call side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from remuda._engine.commands.engine import Engine


class OfAPart(Protocol):
    """The members of `Part` that the decorator uses."""

    _engine: Engine
    _part: int


P = ParamSpec("P")
S = TypeVar("S", bound=OfAPart)
T = TypeVar("T")


def with_hub_lock(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A decorator of methods that call the hub several times. While the method runs, threads that use other parts enter
    the hub only while it sleeps."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._engine.hub is None:  # the pool cannot be used: the method raises the error
            return method(self, *args, **kwargs)
        return self._engine.hub.in_turn(partial(method, self, *args, **kwargs), self._part)  # type: ignore[return-value]

    return call
