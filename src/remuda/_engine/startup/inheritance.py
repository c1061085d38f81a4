"""The state of envs that a pool takes over from an earlier pool of the same envs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from remuda import _core
from remuda._wire.layout import Layout
from remuda._worker.reset_defaults import ResetDefaults

Counts: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.uint64]]"

RESETS, STEPS, RESULTS, SEED_BASE, SEEDED_AT, COUNTED_FROM, NEEDS_RESET, IS_FRESH_ON_SHARD = range(8)
"""The columns of `Counts`. `Progress` in shm/plan.hpp explains them."""


@dataclass(frozen=True)
class Inheritance:
    """The state that a new pool takes over from an earlier pool of the same envs, by env id in the new pool.

    Attributes:
        progress: (n, 8): the counts of each env.
        defaults: The seeds and options of resets.
    """

    progress: Counts
    defaults: ResetDefaults


def progress_of(arena: _core.Arena, layout: Layout) -> Counts:
    """Returns the counts of all envs (resets, steps, ...): a view (n, 8) of shared memory."""
    column = arena.column(np.dtype(np.uint64), [8], layout.plan.progress)
    counts: Counts = column.view(layout.num_envs)
    return counts
