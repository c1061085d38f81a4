"""Keeps calls with a lasting effect (attributes, seeds), which rebuilt envs receive again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from remuda._engine.running.calls import Addressee
from remuda._engine.running.changes import Changes
from remuda._wire.pickling import Parts, dump
from remuda._wire.requests import TellAgain, remember
from remuda.errors import Failure, RemudaError


class RememberedCalls:
    """Keeps the latest call about each thing, by env. Workers keep the same for envs that they rebuild themselves."""

    def __init__(self) -> None:
        self._kept: dict[int, dict[Hashable, Parts]] = {}

    def remember(self, env: int, about: Hashable, request: Parts) -> None:
        """Keeps a call to an env, in the place of an earlier one about the same thing."""
        remember(self._kept.setdefault(env, {}), about, request)

    def for_successor(self, env_ids: Sequence[int], replacements: int) -> Parts | None:
        """Returns the message for the n-th successor, from 1, of a worker with these envs; None without calls."""
        kept = {env: self._kept[env] for env in env_ids if env in self._kept}
        return dump(TellAgain(kept, replacements)) if kept else None


@dataclass(frozen=True)
class Remembering:
    """The receiver of the answer to a call: keeps the call once the env has answered."""

    addressee: Addressee
    calls: RememberedCalls
    env: int
    about: Hashable
    request: Parts

    def answer(self, sequence: int, parts: Parts) -> None:
        self.calls.remember(self.env, self.about, self.request)
        self.addressee.answer(sequence, parts)

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        self.addressee.fail(sequence, failure, changes)

    def abandon(self, error: RemudaError) -> None:
        self.addressee.abandon(error)
