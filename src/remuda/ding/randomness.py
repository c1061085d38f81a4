"""``np.random`` as each env finds it: its own, as if it had a process to itself.

DI-engine's envs seed NumPy's global generator in ``seed``, and draw the seeds of their episodes from it. So a run would
depend on who else is in the worker, were it not for this.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.random import mtrand


class OwnRandomness:
    """A global generator for one env. The first in a worker begins as the worker did, the others elsewhere.

    NumPy keeps the second of two normals beside the generator: it is lost where envs take turns.
    """

    def __init__(self) -> None:
        index = next(_indices)
        self._generator = copy.deepcopy(_inherited())
        if index > 0:
            self._generator = _elsewhere(self._generator, index)

    def take_over(self) -> None:
        """Makes it the one that ``np.random`` draws from."""
        if mtrand.get_bit_generator() is not self._generator:
            mtrand.set_bit_generator(self._generator)

    def move_on(self, *path: int) -> None:
        """Continues with other numbers than those of the env that this one replaces, which had an equal seed.

        Args:
            path: Any numbers; from the same state the same path leads to the same numbers.
        """
        self._generator = _elsewhere(self._generator, *path)
        self.take_over()


def _elsewhere(generator: np.random.BitGenerator, *path: int) -> np.random.BitGenerator:
    words = generator.random_raw(4).tolist()
    return type(generator)(np.random.SeedSequence([*words, *path]))


@contextmanager
def untouched() -> Iterator[None]:
    """Restores the state of ``np.random`` afterwards."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


@functools.cache
def _inherited() -> np.random.BitGenerator:
    """Returns the generator that the worker began with. No env draws from it."""
    return mtrand.get_bit_generator()


_indices = itertools.count()
