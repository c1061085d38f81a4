"""Gives seeds to envs by one of two rules, and keeps the latest seed of each env."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from remuda._engine.reset_arguments import entropy_for, seeds_for
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults, SeedBase

Seed: TypeAlias = int | Sequence[int | None] | None
Order: TypeAlias = SeedBase | None  # the base from which a reset and later resets derive their seeds; None: no new base


class Seeds:
    """The rule of seeding. Workers derive seeds from a `SeedBase`, which they get with a reset, or when they start.

    By Gymnasium's rule an int seeds env i with seed + i, and a reset without a seed continues the env's random numbers.
    A rebuilt env has no numbers to continue, so its first reset gets a seed derived from the last one. With per-episode
    seeds, each episode's seed is derived from the caller's seed, the env, and the episode's number.
    """

    def __init__(self, defaults: ResetDefaults, layout: Layout, *, per_episode: bool) -> None:
        """`defaults`: the defaults for resets of the pool, in which the bases of the seeds are kept."""
        self._bases, self._layout, self._per_episode = defaults.bases, layout, per_episode
        self._given = 0
        self._drawn: int | None = None  # a random seed of the pool, for envs without a per-episode seed from the caller

    def orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        """Returns a new base, or None, for each of `envs`. The bases hold once they are given to `note`.

        `ids`: the ids for which the caller gave `seed`: slots, or ids of spares.

        Raises:
            ValueError, TypeError: A sequence of another length, or a seed that is not valid.
        """
        self._given += 1
        if self._per_episode:
            return [self._of_every_episode(*one) for one in zip(entropy_for(seed, ids), envs, strict=True)]
        orders = list[Order]()
        for each, its in zip(self._layout.by_env(seeds_for(seed, ids)), self._layout.by_env(envs), strict=True):
            is_one = None not in each and each == list(range(each[0] or 0, (each[0] or 0) + len(each)))
            for sub_env, (one, env) in enumerate(zip(each, its, strict=True)):
                base = None if one is None else SeedBase(one, self._given, env, False, sub_env if is_one else 0)
                orders.append(base)
        return orders

    def _of_every_episode(self, entropy: int | None, env: int) -> Order:
        """Returns a new base; None if the env continues with the seeds of its last base."""
        if entropy is None:
            if env in self._bases:
                return None
            entropy = self._drawn = secrets.randbits(128) if self._drawn is None else self._drawn
        return SeedBase(entropy, self._given, env)

    def continue_from(self, other: Seeds) -> None:
        """Continues the seeds that callers gave to another pool with the same envs."""
        self._given, self._drawn = other._given, other._drawn

    def note(self, orders: Sequence[Order], envs: Sequence[int]) -> None:
        """Puts bases into force, once they were sent to these envs."""
        self._bases.update({env: base for env, base in zip(envs, orders, strict=True) if base is not None})

    def latest(self, env: int, seeded: tuple[int, int, int]) -> tuple[int | None, int]:
        """Returns (last seed of an env, number of the env's resets after the reset with that seed).

        Args:
            seeded: The number of its base, the index of the last seed derived from that, and the number of resets
                since then, as the worker counts them.
        """
        if (base := self._bases.get(env)) is None:
            return None, 0
        number, n, resets = seeded
        if number != base.number:  # the reset with this base has not begun yet
            n = resets = 0
        return base.seed(n), resets
