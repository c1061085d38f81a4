"""Remembers the lasting calls of envs (attributes, seeds) once they are answered, for envs that are rebuilt."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from remuda._engine.running.calls import Addressee
from remuda._engine.running.changes import Changes
from remuda._wire.pickling import Parts
from remuda._wire.requests import RememberedCalls
from remuda.errors import Failure, RemudaError


@dataclass(frozen=True)
class Remembering:
    """Takes the answer of an env to a lasting call, and remembers the call."""

    addressee: Addressee
    standing: RememberedCalls
    env: int
    about: Hashable
    request: Parts

    def answer(self, sequence: int, parts: Parts) -> None:
        self.standing.remember(self.env, self.about, self.request)
        self.addressee.answer(sequence, parts)

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        self.addressee.fail(sequence, failure, changes)

    def abandon(self, error: RemudaError) -> None:
        self.addressee.abandon(error)
