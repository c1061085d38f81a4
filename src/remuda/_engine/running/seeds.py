"""The two rules of seeding: the seeds that envs get, and the latest seed of each env."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from remuda._engine.running.seeding import entropy_for, seeds_for
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults, SeedBase

Seed: TypeAlias = int | Sequence[int | None] | None
Order: TypeAlias = SeedBase | None  # the base from which a reset, and later ones, derive their seeds


class Seeds:
    """A rule of seeding. Workers derive the seeds from a base, which the pool sends with a reset and to successors."""

    def __init__(self, defaults: ResetDefaults) -> None:
        """`defaults`: those of the pool, where the bases are kept."""
        self._bases = defaults.bases
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

    def continue_from(self, other: Seeds) -> None:
        """Continues the count of seeds of another pool of the same envs."""
        self._given = other._given

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
        return base.seed(n), resets


class GymnasiumSeeds(Seeds):
    """An int seeds env i with seed + i; a reset without a seed continues the random numbers of the env.

    A rebuilt env has no numbers to continue, so its first reset gets a seed derived from the last one.
    """

    def __init__(self, defaults: ResetDefaults, layout: Layout) -> None:
        super().__init__(defaults)
        self._layout = layout

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        orders = list[Order]()
        each_env = zip(self._layout.by_env(seeds_for(seed, ids)), self._layout.by_env(envs), strict=True)
        for each, its in each_env:
            is_one = None not in each and each == list(range(each[0] or 0, (each[0] or 0) + len(each)))
            orders += [
                None
                if one is None
                else SeedBase(
                    int(one),
                    self._given,
                    env,
                    of_every_episode=False,
                    sub_env=sub_env if is_one else 0,
                )
                for sub_env, (one, env) in enumerate(zip(each, its, strict=True))
            ]
        return orders


class EpisodeSeeds(Seeds):
    """Every episode has its own seed, derived from the caller's seed, the env, and the number of the episode."""

    _drawn: int | None = None  # for envs without a seed

    def continue_from(self, other: Seeds) -> None:
        super().continue_from(other)
        self._drawn = getattr(other, "_drawn", None)

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        """Returns None for an env that continues its count."""
        return [self._order(*one) for one in zip(entropy_for(seed, ids), envs, strict=True)]

    def _order(self, entropy: int | None, env: int) -> Order:
        if entropy is None:
            if env in self._bases:
                return None
            entropy = self._drawn = secrets.randbits(128) if self._drawn is None else self._drawn
        return SeedBase(int(entropy), self._given, env)
