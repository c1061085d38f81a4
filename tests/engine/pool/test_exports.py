"""What other libraries make of a batch's arrays shares its memory, holds its lease, and may outlive everything."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from programs import Script

from remuda import Pool, _core

BACKENDS = ("process", "thread", "serial")
LIBRARIES = {"jax": "JAX is not installed (it takes 600 MB)", "torch": "torch is not installed"}

# By name: which library, and how it takes an array.
EXPORTS = {
    "numpy.from_dlpack": ("numpy", "numpy.from_dlpack(array)"),
    "torch.from_numpy": ("torch", "torch.from_numpy(array)"),
    "torch.from_dlpack": ("torch", "torch.from_dlpack(array)"),
    "jax.numpy.from_dlpack": ("jax", "jax.numpy.from_dlpack(array)"),
}
# 16 rows of 16 bytes: each frame of observations begins at a multiple of 64 bytes, else JAX would copy it.
ENVS = [lambda: gymnasium.make("CartPole-v1")] * 16
LEFT, RIGHT = np.zeros(16, int), np.ones(16, int)


def import_or_skip(library: str) -> Any:
    if library in LIBRARIES:
        pytest.importorskip(library, reason=LIBRARIES[library])
    return importlib.import_module(library)


def export(what: str, array: Any) -> Any:
    library, expression = EXPORTS[what]
    return eval(expression, {library: import_or_skip(library), "array": array})


def address(made: Any) -> int:
    if hasattr(made, "unsafe_buffer_pointer"):
        return int(made.unsafe_buffer_pointer())
    return int(made.data_ptr() if hasattr(made, "data_ptr") else made.ctypes.data)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", EXPORTS)
def test_it_shares_the_frame_and_holds_it(what: str, backend: Any) -> None:
    import_or_skip(EXPORTS[what][0])
    with Pool(ENVS, backend=backend, num_workers=2, frames=2) as pool:
        pool.reset(seed=0)
        batch = pool.step(LEFT)
        made, where, values = export(what, batch.obs), batch.obs.ctypes.data, batch.obs.tolist()
        assert address(made) == where
        del batch
        for _ in range(5):  # the one frame that may be lent is held
            assert _core.arena_of(pool.step(RIGHT).obs) is None
        assert np.asarray(made).tolist() == values
        del made
        assert _core.arena_of(pool.step(LEFT).obs) is not None


@pytest.mark.parametrize("what", EXPORTS)
def test_it_outlives_the_pool(what: str) -> None:
    import_or_skip(EXPORTS[what][0])
    pool = Pool(ENVS, backend="serial")
    batch = pool.reset(seed=0)
    made, values = export(what, batch.obs), batch.obs.tolist()
    pool.close()
    del pool, batch
    assert np.asarray(made).tolist() == values


BEGIN = """
from remuda import _core
_core.set_leak_warnings(True)
import {library}
"""
HOLD = """
pool_{n} = Pool([lambda: gymnasium.make("CartPole-v1")] * 16, num_workers=1)
array = pool_{n}.reset().obs
held_{n} = [{expression}]
del array
"""
WAYS = {
    "open": "",
    "closed": "pool_{n}.close()",
    "never freed": "ctypes.pythonapi.Py_IncRef(ctypes.py_object(held_{n}))",
}


@pytest.mark.leaves_things
@pytest.mark.parametrize("library", dict.fromkeys(library for library, _ in EXPORTS.values()))
def test_it_outlives_the_interpreter_without_a_word(library: str, script: Callable[..., Script]) -> None:
    """Not even where the binding is asked to report whatever of it is left. One program for all: each imports a lot."""
    import_or_skip(library)
    expressions = [expression for its, expression in EXPORTS.values() if its == library]
    program = BEGIN.format(library=library)
    for n, (expression, then) in enumerate(itertools.product(expressions, WAYS.values())):
        program += (HOLD + then).format(n=n, expression=expression)
    assert script(program).await_end() == (0, "", "")


@pytest.mark.leaves_things
def test_the_binding_does_report_what_is_left(script: Callable[..., Script]) -> None:
    """Else the test above would find nothing whatever there is."""
    run = script(
        """
from remuda import _core
_core.set_leak_warnings(True)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_core.InfoReader()))
"""
    )
    code, _, said = run.await_end()
    assert code == 0
    assert "leaked 1 instances" in said


def test_arrays_of_others_are_of_no_arena() -> None:
    for array in (np.zeros(3), np.zeros(3)[1:], np.frombuffer(b"abc", np.uint8)):
        assert _core.arena_of(array) is None
