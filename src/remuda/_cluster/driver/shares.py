"""Divides the envs of a pool among shards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """The envs of one shard: a range of the pool's envs.

    Attributes:
        shard: The index of the shard.
        first, count: Its first env, and the number of its envs.
    """

    shard: int
    first: int
    count: int

    @property
    def env_ids(self) -> range:
        return range(self.first, self.first + self.count)

    def factories(self, width: int) -> slice:
        """Returns the slice of the pool's factories for the shard. `width`: the number of envs of each factory."""
        return slice(self.first // width, (self.first + self.count) // width)


def divide(num_factories: int, shards: int, width: int) -> list[Share]:
    """Divides envs evenly. The first shards take the remainder. `width`: the number of envs that one factory builds."""
    each, rest = divmod(num_factories, shards)
    shares, first = list[Share](), 0
    for shard in range(shards):
        shares.append(Share(shard, first, (each + (shard < rest)) * width))
        first += shares[-1].count
    return shares
