"""Keeps the arguments of resets in advance, which the successor of a spare's worker receives again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from remuda._engine.calls import Addressee
from remuda._engine.supervision.faults import Faults
from remuda._wire.pickling import Buffers
from remuda.errors import Failure, RemudaError


class Preparations:
    """Keeps the arguments of resets in advance, each until its spare has made the reset."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._arguments: dict[int, Buffers] = {}  # the arguments, by env

    def expect(self, spare: int, arguments: Buffers) -> Addressee:
        """Keeps the arguments of a spare's reset in advance. Returns the object that receives the spare's answer."""
        self._arguments[spare] = arguments
        return _Preparation(self._faults, self._arguments, spare, arguments)

    def forget(self, envs: Iterable[int]) -> None:
        """Drops the kept arguments for envs that the caller has reset with other arguments."""
        for env in envs:
            self._arguments.pop(env, None)

    def is_unmade(self, env: int) -> bool:
        """Whether an env has not made its reset in advance with arguments."""
        return env in self._arguments

    def unmade(self, envs: Iterable[int]) -> Iterator[tuple[int, Buffers, Addressee]]:
        """Yields (env, arguments, receiver of the answer) for each of `envs` that has not made its reset in advance."""
        for env in envs:
            if (arguments := self._arguments.get(env)) is not None:
                yield env, arguments, _Preparation(self._faults, self._arguments, env, arguments)


@dataclass(frozen=True)
class _Preparation:
    faults: Faults
    unmade: dict[int, Buffers]
    env: int
    arguments: Buffers

    def answer(self, sequence: int, parts: Buffers) -> None:
        if self.unmade.get(self.env) is self.arguments:
            del self.unmade[self.env]

    def fail(self, sequence: int, failure: Failure) -> None:
        self.faults.add_failure(failure)

    def abandon(self, error: RemudaError) -> None:
        """Does nothing when the spare's worker has died: the worker's successor receives the arguments again."""
