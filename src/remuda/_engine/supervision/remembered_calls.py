"""Remembers what envs were told for good (attributes, seeds), to tell it again to envs that are built anew."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from remuda._engine.running.calls import Addressee
from remuda._engine.running.changes import Changes
from remuda._wire.pickling import Parts, dump
from remuda._wire.requests import TellAgain, remember
from remuda.errors import Failure, RemudaError


class RememberedCalls:
    """By env and by what it was about. Workers keep the same for envs that they build anew themselves."""

    def __init__(self) -> None:
        self._told: dict[int, dict[Hashable, Parts]] = {}

    def remember(self, env: int, about: Hashable, request: Parts) -> None:
        remember(self._told.setdefault(env, {}), about, request)

    def for_successor(self, env_ids: Sequence[int], replacements: int) -> Parts | None:
        """The message for the n-th worker, from 1, in the place of another with these envs; None where they were told
        nothing."""
        told = {env: self._told[env] for env in env_ids if env in self._told}
        return dump(TellAgain(told, replacements)) if told else None


@dataclass(frozen=True)
class Remembering:
    """Takes the answer of an env to what it was told, and remembers that it was told so."""

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
