"""Derives seeds from the caller's seed: for episodes, rebuilt envs and evaluations."""

from __future__ import annotations

import numpy as np


def derive_seed(entropy: int, *spawn_key: int) -> int:
    """Returns a seed of 31 bits, because native simulators expect a signed int of 32 bits."""
    sequence = np.random.SeedSequence(entropy, spawn_key=spawn_key)
    return int(sequence.generate_state(1)[0]) & 0x7FFFFFFF
