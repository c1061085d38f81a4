"""Describes how a pool was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal


@dataclass(frozen=True)
class PoolSetup:
    """The options of a pool, and other facts about it, that its figures and verdicts depend on.

    Attributes:
        envs_of_worker: The number of envs of each worker, the spares last.
        backend, autoreset, spares, vector_size: Those of the pool.
        is_chosen: Whether "auto" has chosen the number of workers, or envs that render leave no choice.
        parts: The number of parts of the pool.
        keeps_apart: Whether the options require separate workers for envs: then fewer workers are never suggested.
    """

    envs_of_worker: tuple[int, ...]
    backend: Literal["process", "thread", "serial", "auto"] = "process"
    autoreset: str = "next_step"
    spares: int = 0
    vector_size: int | None = None
    is_chosen: bool = False
    parts: int = 1
    keeps_apart: bool = False

    @property
    def num_envs(self) -> int:
        """The number of envs without spares."""
        return sum(self.envs_of_worker) - self.spares

    @property
    def num_workers(self) -> int:
        """The number of workers, those of spares included."""
        return len(self.envs_of_worker)


def hosted_ids(envs_of_worker: Sequence[int], first: int = 0) -> list[tuple[int, ...]]:
    """Returns the ids of each worker's envs. Ids begin at `first`, and envs with neighbouring ids share a worker."""
    starts = accumulate(envs_of_worker, initial=first)
    return [tuple(range(start, start + count)) for start, count in zip(starts, envs_of_worker, strict=False)]
