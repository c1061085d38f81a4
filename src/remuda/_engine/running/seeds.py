"""The two rules of seeding: the seeds that envs get, and the latest seed of each env."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from remuda._engine.running.seeding import entropy_for, given_before, seeds_for
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults, SeedBase

Seed: TypeAlias = int | Sequence[int | None] | None
Order: TypeAlias = SeedBase | None  # the base from which a reset, and later ones, derive their seeds


class Seeds:
    """A rule of seeding. Workers derive the seeds from a base, which the pool sends with a reset and to successors."""

    def __init__(self, defaults: ResetDefaults, first_env: int = 0) -> None:
        """`defaults`: those of the pool, where the bases are kept. `first_env`: see `SeedBase`."""
        self._bases, self._first_env = defaults.bases, first_env
        self._given = 0

    def orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        """Returns the base for each of these envs, which the caller names by `ids`. It is in force once noted.

        Raises:
            ValueError, TypeError: A sequence of another length, or a seed that is not valid.
        """
        self._given += 1
        return self._orders(seed, ids, envs)

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        raise NotImplementedError

    def note(self, orders: Sequence[Order], envs: Sequence[int]) -> None:
        """Puts bases into force that were sent to these envs."""
        self._bases.update({env: base for env, base in zip(envs, orders, strict=True) if base is not None})

    def latest(self, env: int, seeded: tuple[int, int, int]) -> tuple[int | None, int]:
        """Returns the last seed of an env, and the number of resets after that one.

        Args:
            seeded: The number of its base, the index of the last seed derived from that, and the number of resets
                since then, as the worker counts them.
        """
        if (base := self._bases.get(env)) is None:
            return None, 0
        number, n, resets = seeded
        if number != base.number:  # the reset that it was given with has not begun yet
            n = resets = 0
        return base.seed(env, n), resets


class GymnasiumSeeds(Seeds):
    """An int seeds env i with seed + i; a reset without a seed continues the random numbers of the env.

    A rebuilt env has no numbers to continue, so its first reset gets a seed derived from the last one.
    """

    def __init__(self, defaults: ResetDefaults, layout: Layout, first_env: int = 0) -> None:
        super().__init__(defaults, first_env)
        self._layout = layout

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        orders = list[Order]()
        for each in self._layout.by_env(seeds_for(seed, ids)):
            is_one = None not in each and each == list(range(each[0] or 0, (each[0] or 0) + len(each)))
            orders += [
                None
                if one is None
                else SeedBase(
                    int(one),
                    self._given,
                    of_every_episode=False,
                    sub_env=sub_env if is_one else 0,
                    first_env=self._first_env,
                    given=given_before(one),
                )
                for sub_env, one in enumerate(each)
            ]
        return orders


class EpisodeSeeds(Seeds):
    """Every episode has its own seed, derived from the caller's seed, the env, and the number of the episode."""

    _drawn: int | None = None  # for envs without a seed

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        """Returns None for an env that continues its count."""
        return [self._order(*one) for one in zip(entropy_for(seed, ids), envs, strict=True)]

    def _order(self, entropy: int | None, env: int) -> Order:
        if entropy is None:
            if env in self._bases:
                return None
            entropy = self._drawn = secrets.randbits(128) if self._drawn is None else self._drawn
        return SeedBase(int(entropy), self._given, first_env=self._first_env, given=given_before(entropy))
