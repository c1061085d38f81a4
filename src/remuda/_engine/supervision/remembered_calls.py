"""Remembers lasting calls (such as those that set an attribute), so that rebuilt envs receive them again."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from remuda._engine.calls import Addressee
from remuda._wire.pickling import Buffers
from remuda._wire.requests import RememberedCalls
from remuda.errors import Failure, RemudaError


@dataclass(frozen=True)
class Remembering:
    """Receives an env's answer to a lasting call: remembers the call for rebuilt envs, and passes the answer on."""

    addressee: Addressee
    calls: RememberedCalls
    env: int
    about: Hashable
    request: Buffers

    def answer(self, sequence: int, parts: Buffers) -> None:
        self.calls.remember(self.env, self.about, self.request)
        self.addressee.answer(sequence, parts)

    def fail(self, sequence: int, failure: Failure) -> None:
        self.addressee.fail(sequence, failure)

    def abandon(self, error: RemudaError) -> None:
        self.addressee.abandon(error)
