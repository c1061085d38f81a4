"""Seeds that follow from one that the caller gave: of episodes, of envs that are built anew, of evaluations."""

from __future__ import annotations

import numpy as np


def derive_seed(entropy: int, *spawn_key: int) -> int:
    """A seed of 31 bits, for native simulators take a signed int."""
    sequence = np.random.SeedSequence(entropy, spawn_key=spawn_key)
    return int(sequence.generate_state(1)[0]) & 0x7FFFFFFF
