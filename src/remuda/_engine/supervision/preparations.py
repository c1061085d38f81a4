"""The arguments of resets in advance, which the successors of workers receive again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remuda._engine.running.calls import Addressee
from remuda._engine.running.changes import Changes
from remuda._engine.supervision.faults import Faults
from remuda._wire.pickling import Parts
from remuda.errors import Failure, RemudaError


class Preparations:
    """Keeps the arguments of resets in advance until the spares have made them."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._arguments: dict[int, Parts] = {}  # by env

    def expect(self, spare: int, arguments: Parts) -> Addressee:
        """Keeps the arguments of a spare. Returns the receiver of its answer."""
        self._arguments[spare] = arguments
        return _Preparation(self._faults, self._arguments, spare, arguments)

    def forget(self, envs: Iterable[int]) -> None:
        """Drops the arguments of envs that are reset with others."""
        for env in envs:
            self._arguments.pop(env, None)

    def unmade(self, envs: Iterable[int]) -> Iterator[tuple[int, Parts, Addressee]]:
        """Yields the envs that have not made their reset, with its arguments and the receiver of the answer."""
        for env in envs:
            if (arguments := self._arguments.get(env)) is not None:
                yield env, arguments, _Preparation(self._faults, self._arguments, env, arguments)


@dataclass(frozen=True)
class _Preparation:
    faults: Faults
    unmade: dict[int, Parts]
    env: int
    arguments: Parts

    def answer(self, sequence: int, parts: Parts) -> None:
        if self.unmade.get(self.env) is self.arguments:
            del self.unmade[self.env]

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        self.faults.add_failure(failure, changes)

    def abandon(self, error: RemudaError) -> None:
        """Does nothing: the successor receives the arguments again."""
