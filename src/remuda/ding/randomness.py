"""``np.random`` as each env finds it: its own, as if it had a process to itself.

DI-engine's envs seed NumPy's global generator in ``seed``, and draw the seeds of their episodes from it. So a run would
depend on who else is in the worker, were it not for this.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.random import mtrand


class OwnRandomness:
    """A global generator for one env. The first in a worker begins as the worker did, the others elsewhere.

    What NumPy keeps beside the generator, half of a pair of normals that nobody has asked for, is lost where envs
    take turns.
    """

    def __init__(self) -> None:
        begun = next(_begun)
        self._generator = copy.deepcopy(_inherited())
        if begun > 0:
            self._generator = _elsewhere(self._generator, begun)

    def take_over(self) -> None:
        """Make it the one that ``np.random`` draws from."""
        if mtrand.get_bit_generator() is not self._generator:
            mtrand.set_bit_generator(self._generator)

    def move_on(self, *path: int) -> None:
        """Go on with other numbers than those of the env in whose place this one is, which was seeded alike.

        Args:
            path: where to; from the same place the same path leads to the same numbers.
        """
        self._generator = _elsewhere(self._generator, *path)
        self.take_over()


def _elsewhere(generator: np.random.BitGenerator, *path: int) -> np.random.BitGenerator:
    words = generator.random_raw(4).tolist()
    return type(generator)(np.random.SeedSequence([*words, *path]))


@contextmanager
def untouched() -> Iterator[None]:
    """Lets ``np.random`` go on afterwards as if nothing had seeded it."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


def _inherited() -> np.random.BitGenerator:
    """Return what the worker began with: nobody draws from that any more."""
    if not _first:
        _first.append(mtrand.get_bit_generator())
    return _first[0]


_first: list[np.random.BitGenerator] = []
_begun = itertools.count()
