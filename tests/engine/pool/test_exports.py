"""Arrays that other libraries make of a batch's arrays share its memory, hold its lease, and may outlive the pool."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from pool_envs import begun
from programs import Script

from remuda import _core
from remuda._system.interpreter import has_gil

LIBRARIES = {"jax": "JAX is not installed (it takes 600 MB)", "torch": "torch is not installed"}

# Export by name: the library that makes the array, and the expression that makes it.
EXPORTS = {
    "numpy.from_dlpack": ("numpy", "numpy.from_dlpack(array)"),
    "torch.from_numpy": ("torch", "torch.from_numpy(array)"),
    "torch.from_dlpack": ("torch", "torch.from_dlpack(array)"),
    "jax.numpy.from_dlpack": ("jax", "jax.numpy.from_dlpack(array)"),
}
# 16 rows of 16 bytes align each frame of observations to 64 bytes. JAX copies arrays that are less aligned.
ENVS = [lambda: gymnasium.make("CartPole-v1")] * 16
LEFT, RIGHT = np.zeros(16, int), np.ones(16, int)


def import_or_skip(library: str) -> Any:
    if library in LIBRARIES:
        pytest.importorskip(library, reason=LIBRARIES[library])
    return importlib.import_module(library)


def export(name: str, array: Any) -> Any:
    library, expression = EXPORTS[name]
    return eval(expression, {library: import_or_skip(library), "array": array})


def address(made: Any) -> int:
    if hasattr(made, "unsafe_buffer_pointer"):
        return int(made.unsafe_buffer_pointer())
    return int(made.data_ptr() if hasattr(made, "data_ptr") else made.ctypes.data)


@pytest.mark.parametrize("name", EXPORTS)
def test_an_exported_array_shares_the_frame_holds_its_lease_and_outlives_the_pool(name: str) -> None:
    import_or_skip(EXPORTS[name][0])
    with begun(ENVS, backend="serial", frames=2, seed=0) as pool:
        batch = pool.step(LEFT)
        made, place, values = export(name, batch.obs), batch.obs.ctypes.data, batch.obs.tolist()
        assert address(made) == place
        del batch
        for _ in range(5):  # the exported array holds the only frame that the pool may lend
            assert _core.arena_of(pool.step(RIGHT).obs) is None
        assert np.asarray(made).tolist() == values
        del made
        batch = pool.step(LEFT)
        assert _core.arena_of(batch.obs) is not None
        made, values = export(name, batch.obs), batch.obs.tolist()
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
def test_an_exported_array_outlives_the_interpreter_without_leak_reports(
    library: str, script: Callable[..., Script]
) -> None:
    """The interpreter ends without leak reports. One program tests all exports of a library, because its import is
    slow.
    """
    import_or_skip(library)
    expressions = [expression for owner, expression in EXPORTS.values() if owner == library]
    program = BEGIN.format(library=library)
    for n, (expression, then) in enumerate(itertools.product(expressions, WAYS.values())):
        program += (HOLD + then).format(n=n, expression=expression)
    assert script(program).await_end() == (0, "", "")


@pytest.mark.leaves_things
@pytest.mark.skipif(not has_gil(), reason="the binding looks for leaked objects only with the GIL")
def test_the_binding_reports_a_leaked_object(script: Callable[..., Script]) -> None:
    """This proves that the test above could fail."""
    run = script(
        """
from remuda import _core
_core.set_leak_warnings(True)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_core.InfoReader()))
"""
    )
    code, _, stderr = run.await_end()
    assert code == 0
    assert "leaked 1 instances" in stderr


def test_other_arrays_belong_to_no_arena() -> None:
    for array in (np.zeros(3), np.zeros(3)[1:], np.frombuffer(b"abc", np.uint8)):
        assert _core.arena_of(array) is None
