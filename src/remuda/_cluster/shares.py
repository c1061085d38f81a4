"""Which envs are on which shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Share:
    """The envs of one shard, which are neighbours.

    Attributes:
        shard: Its index.
        first: Its first env.
        count: Of its envs.
    """

    shard: int
    first: int
    count: int

    @property
    def env_ids(self) -> range:
        return range(self.first, self.first + self.count)

    @cached_property
    def _all(self) -> Ids:
        return np.arange(self.first, self.first + self.count)

    def local(self, env_ids: Ids) -> list[int] | None:
        """Their numbers within the shard; None: they are all of its envs, in order."""
        if np.array_equal(env_ids, self._all):
            return None
        return (env_ids - self.first).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Portion:
    """What one shard has of some envs.

    Attributes:
        share: The shard's.
        where: (n,) places among the envs that were divided.
        env_ids: (n,) the envs.
    """

    share: Share
    where: Ids
    env_ids: Ids


class Shares:
    """Who has which envs: neighbours are together, and the first shards take what is left over.

    Attributes:
        each: The shards' shares.
        num_envs: Of all.
    """

    def __init__(self, num_factories: int, shards: int, width: int) -> None:
        """`width`: envs that come from one factory."""
        share, rest = divmod(num_factories, shards)
        counts = [(share + (shard < rest)) * width for shard in range(shards)]
        firsts = [sum(counts[:shard]) for shard in range(shards)]
        self.each = [Share(*one) for one in zip(range(shards), firsts, counts, strict=True)]
        self.num_envs, self._firsts, self._width = sum(counts), np.array(firsts), width

    def shard_of(self, env_ids: Ids | Sequence[int]) -> Ids:
        return np.searchsorted(self._firsts, env_ids, side="right").astype(np.int64) - 1

    def factories_of(self, share: Share) -> slice:
        """Which of the factories are its."""
        return slice(share.first // self._width, (share.first + share.count) // self._width)

    def divide(self, env_ids: Ids) -> list[Portion]:
        """What each shard concerned has of these."""
        of, portions = self.shard_of(env_ids), list[Portion]()
        for shard in np.unique(of).tolist():
            where = np.flatnonzero(of == shard)
            portions.append(Portion(self.each[shard], where, env_ids[where]))
        return portions
