"""Gives each env its own ``np.random``, as if it had a process of its own.

DI-engine's envs seed NumPy's global generator in ``seed``, and draw the seeds of their episodes from it. With a shared
generator, the results of an env would depend on the other envs in its worker.
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
    """One env's generator for ``np.random``. Only the first env of a worker begins with the worker's own state.

    NumPy draws normal numbers in pairs and caches the second one, which is lost if envs take turns.
    """

    def __init__(self) -> None:
        index = next(_indices)
        self._generator = copy.deepcopy(_inherited())
        if index > 0:
            self._generator = _elsewhere(self._generator, index)

    def take_over(self) -> None:
        """Makes ``np.random`` use this env's generator."""
        if mtrand.get_bit_generator() is not self._generator:
            mtrand.set_bit_generator(self._generator)

    def move_on(self, *path: int) -> None:
        """Changes the generator's state, so that a rebuilt env, seeded like its predecessor, draws other numbers.

        Args:
            path: Any numbers. The same path changes the same state in the same way.
        """
        self._generator = _elsewhere(self._generator, *path)
        self.take_over()


def _elsewhere(generator: np.random.BitGenerator, *path: int) -> np.random.BitGenerator:
    words = generator.random_raw(4).tolist()
    return type(generator)(np.random.SeedSequence([*words, *path]))


@contextmanager
def untouched() -> Iterator[None]:
    """A context manager that restores the state of ``np.random`` at its end."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


@functools.cache
def _inherited() -> np.random.BitGenerator:
    """Returns the generator with which the worker started. Envs draw from copies of it."""
    return mtrand.get_bit_generator()


_indices = itertools.count()
