"""Which seeds the envs of a pool get, by either of two rules; and what is known of them later."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeAlias

from remuda._engine.running.seeding import entropy_for, given_before, seeds_for
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults, SeedBase

Seed: TypeAlias = int | Sequence[int | None] | None
Order: TypeAlias = SeedBase | None  # of a reset: what its seed, and those of later resets, are derived from


class Seeds:
    """A rule. Workers derive seeds by themselves: what they need for that goes along with the reset that has it, and to
    their successors.
    """

    def __init__(self, defaults: ResetDefaults, first_env: int = 0) -> None:
        """`defaults`: the pool's; the bases in it are kept here. `first_env`: as in `SeedBase`."""
        self._bases, self._first_env = defaults.bases, first_env
        self._given = 0

    def orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        """What goes to each of these envs, which the caller knows by these ids. It holds once it is noted.

        Raises:
            ValueError, TypeError: A sequence of another length, or a seed that cannot be one.
        """
        self._given += 1
        return self._orders(seed, ids, envs)

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        raise NotImplementedError

    def note(self, orders: Sequence[Order], envs: Sequence[int]) -> None:
        """They, `orders` of ours, were sent."""
        self._bases.update({env: base for env, base in zip(envs, orders, strict=True) if base is not None})

    def latest(self, env: int, seeded: tuple[int, int, int]) -> tuple[int | None, int]:
        """The last seed of an env, and how many resets came after that one.

        Args:
            seeded: The number of its base, which of that one's seeds it was given last, and how many resets came
                after that, as its worker counts them.
        """
        if (base := self._bases.get(env)) is None:
            return None, 0
        number, n, resets = seeded
        if number != base.number:  # the reset that it was given with has not begun yet
            n = resets = 0
        return base.seed(env, n), resets


class GymnasiumSeeds(Seeds):
    """An int seeds env i with seed + i; a reset without a seed goes on with the env's random numbers.

    One that was built anew has none to go on with: its first reset gets a seed derived from the last one given.
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
    """Every episode, an autoreset's too, has a seed of its own, derived from what the caller gave, the env, and the
    episode's number.
    """

    _drawn: int | None = None  # for envs that are given nothing

    def _orders(self, seed: Seed, ids: Sequence[int], envs: Sequence[int]) -> list[Order]:
        """None for an env that goes on counting."""
        return [self._order(*one) for one in zip(entropy_for(seed, ids), envs, strict=True)]

    def _order(self, entropy: int | None, env: int) -> Order:
        if entropy is None:
            if env in self._bases:
                return None
            entropy = self._drawn = secrets.randbits(128) if self._drawn is None else self._drawn
        return SeedBase(int(entropy), self._given, first_env=self._first_env, given=given_before(entropy))
