"""Which seeds the envs of a pool get, by either of two rules; and what is known of them later."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from remuda._engine.pool.seeding import entropy_for, seeds_for
from remuda._worker.reset_defaults import ResetDefaults, SeedBase

Seeding: TypeAlias = Literal["gymnasium", "per_episode"]
Seed: TypeAlias = int | Sequence[int | None] | None
Order: TypeAlias = int | SeedBase | None  # of a reset: its seed, or what its seed and the following are derived from

SEEDINGS = ("gymnasium", "per_episode")


class Seeds(Protocol):
    """A rule."""

    def orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> Sequence[Order]:
        """What goes to each of these envs, which the caller knows by these ids. It holds once it is noted.

        Raises:
            ValueError, TypeError: A sequence of another length, or a seed that cannot be one.
        """

    def note(self, orders: Sequence[Any], envs: Sequence[int], resets: Sequence[int]) -> None:
        """They, `orders` of ours, were sent as resets of these numbers."""

    def latest(self, env: int, resets: int, seeded: tuple[int, int]) -> tuple[int | None, int]:
        """The last seed of an env, and how many resets came after that one.

        Args:
            resets: How many it has begun.
            seeded: The number of its base, and of the episode since it has that, as its worker counts them.
        """


class GymnasiumSeeds:
    """An int seeds env i with seed + i; a reset without a seed goes on with the env's random numbers."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, int]] = {}  # by env: the seed, and the number of the reset that had it

    def orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[int | None]:
        return seeds_for(seed, ids)

    def note(self, orders: Sequence[Any], envs: Sequence[int], resets: Sequence[int]) -> None:
        given = zip(envs, orders, resets, strict=True)
        self._given.update({env: (seed, number) for env, seed, number in given if seed is not None})

    def latest(self, env: int, resets: int, seeded: tuple[int, int]) -> tuple[int | None, int]:
        seed, number = self._given.get(env, (None, resets))
        return seed, max(0, resets - number)


class EpisodeSeeds:
    """Every episode has a seed of its own, derived from what the caller gave, the env, and the episode's number.

    Workers derive them by themselves, autoresets' too: what they need for that goes along with the reset that has it,
    and to their successors.
    """

    def __init__(self, defaults: ResetDefaults) -> None:
        """`defaults`: the pool's; the bases in it are kept here."""
        self._bases = defaults.bases
        self._given = 0
        self._drawn: int | None = None  # for envs that are given nothing

    def orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[SeedBase | None]:
        """None for an env that goes on counting."""
        return [self._order(*one) for one in zip(entropy_for(seed, ids), envs, strict=True)]

    def _order(self, entropy: int | None, env: int) -> SeedBase | None:
        if entropy is None:
            if env in self._bases:
                return None
            entropy = self._drawn = secrets.randbits(128) if self._drawn is None else self._drawn
        self._given += 1
        return SeedBase(entropy, self._given)

    def note(self, orders: Sequence[Any], envs: Sequence[int], resets: Sequence[int]) -> None:
        given = zip(envs, orders, strict=True)
        self._bases.update({env: base for env, base in given if base is not None})

    def latest(self, env: int, resets: int, seeded: tuple[int, int]) -> tuple[int | None, int]:
        if (base := self._bases.get(env)) is None:
            return None, 0
        number, episode = seeded
        # The reset that it was given with may not have begun yet.
        return base.episode_seed(env, episode if number == base.number else 0), 0
