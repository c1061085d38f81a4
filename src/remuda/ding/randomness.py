"""``np.random`` as each env finds it: its own, as if it had a process to itself.

DI-engine's envs seed NumPy's global generator in ``seed``, and draw the seeds of their episodes from it. So a run would
depend on who else is in the worker, were it not for this.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.random import mtrand


class OwnRandomness:
    """A global generator for one env; it begins as that of the worker did.

    What NumPy keeps beside the generator, half of a pair of normals that nobody has asked for, is lost where envs
    take turns.
    """

    def __init__(self) -> None:
        self._generator = copy.deepcopy(_inherited())

    def take_over(self) -> None:
        """Make it the one that ``np.random`` draws from."""
        if mtrand.get_bit_generator() is not self._generator:
            mtrand.set_bit_generator(self._generator)


def _inherited() -> np.random.BitGenerator:
    """Return what the worker began with: nobody draws from that any more."""
    if not _first:
        _first.append(mtrand.get_bit_generator())
    return _first[0]


_first: list[np.random.BitGenerator] = []
