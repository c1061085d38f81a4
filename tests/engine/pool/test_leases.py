"""Batches are views of the pool's memory, which stays unchanged while the caller holds them.

The pool reuses array objects of a frame that the caller dropped. Only a weak reference could reveal the reuse.
"""

from __future__ import annotations

import copy
import gc
import importlib
import itertools
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import raise_value_error
from arena_views import address, arenas, arrays_of, is_view, leaves
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import each
from pool_envs import CountingEnv, NestedEnv, begun, counting, hooked, with_infos
from programs import Script, collect

from remuda import Batch, Pool

BACKENDS = ("process", "thread", "serial")


# -- views -----------------------------------------------------------------------------------------------


def test_batches_are_views_that_do_not_overlap() -> None:
    extras = {"steps": lambda env: env.steps}
    with Pool([NestedEnv] * 3, num_workers=2, autoreset="same_step", extras=extras) as pool:
        actions = {"push": np.zeros((3, 2)), "keys": (np.zeros(3, int), np.zeros((3, 2), int))}
        pool.reset()
        for _ in range(12):
            batch = pool.step(actions)
            arrays = [*arrays_of(batch), batch.extras["steps"], *leaves(batch.final_obs or {})]
            assert all(map(is_view, arrays))
            assert all(array.base is not None and not array.flags.owndata for array in arrays)
            assert all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
            ranges = sorted((address(array), array.nbytes) for array in arrays)
            assert all(a + size <= b for (a, size), (b, _) in zip(ranges, ranges[1:], strict=False))


def test_the_caller_may_write_to_all_arrays_but_the_env_ids() -> None:
    with Pool(counting(3), num_workers=1) as pool:
        batch = pool.reset()
        assert batch.env_ids.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):  # all full batches share this array
            batch.env_ids[0] = 5
        for array in arrays_of(batch):
            array[...] = 1
        batch.obs[:] = 77
        after = pool.step([1, 2, 3])
        assert after.obs[:, 3].tolist() == [1, 2, 3]
        assert after.obs[:, 1].tolist() == [1, 1, 1]
        assert (batch.obs == 77).all()
        pool.request_obs()
        assert pool.recv().obs.tolist() == after.obs.tolist()


# -- nothing is overwritten ------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 2, 4, 63])
def test_all_frames_but_one_can_be_held(frames: int) -> None:
    """One frame always remains for the workers. If all others are held, batches are copies."""
    with Pool(counting(2), backend="serial", frames=frames) as pool:
        held = [pool.reset(), *(pool.step([i, i]) for i in range(frames + 3))]
        assert [is_view(batch.obs) for batch in held] == [True] * (frames - 1) + [False] * 5
        assert [batch.rewards.tolist() for batch in held[1:]] == [[i, i] for i in range(frames + 3)]
        assert all(batch.env_ids.tolist() == [0, 1] for batch in held)
        copies = [batch for batch in held if not is_view(batch.obs)]
        assert all(array.flags.owndata and array.flags.writeable for array in arrays_of(copies[0]))
        held.clear()
        del copies
        assert is_view(pool.step([0, 0]).obs) == (frames > 1)


COPYING = """
import resource

class Large(CountingEnv):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (1 << 23,), np.uint8)

    def observe(self):
        return np.full(1 << 23, self.steps, np.uint8)

with Pool([Large] * 3, num_workers=1) as pool:  # a batch has 24 MB
    held = [pool.reset(), *(pool.step([1] * 3) for _ in range(2))]
    say([pool.owns(batch.obs) for batch in held])
    pool.send([7] * 3)
    pool.call("echo")  # the results have arrived when this returns
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), before[1]))
    for _ in range(3):
        try:
            pool.recv()
        except MemoryError:
            say(pool.pending)
    resource.setrlimit(resource.RLIMIT_AS, before)
    batch = pool.recv()
    say([batch.rewards.tolist(), batch.obs[:, 0].tolist(), pool.owns(batch.obs)])
    held.clear()
    del batch
    say([pool.owns(pool.step([1] * 3).obs) for _ in range(4)])
"""


def test_a_batch_for_which_memory_is_missing_is_not_lost(script: Callable[..., Script]) -> None:
    run = script(COPYING, MALLOC_ARENA_MAX="1")  # a thread's arena would reserve memory for the batch
    assert run.read_line() == [True] * 3
    assert [run.read_line() for _ in range(3)] == [3] * 3
    assert run.read_line() == [[7.0] * 3, [3] * 3, False]
    assert run.read_line() == [True] * 4
    assert run.await_end() == (0, "", "")


def _in_another_shape(array: Any) -> Any:
    array.shape = (-1,)
    return array


DERIVED: dict[str, Callable[[Batch], Any]] = {
    "element view": lambda batch: batch.obs[0, 1:2],
    "reshaped": lambda batch: batch.obs.reshape(-1)[3:],
    "other dtype": lambda batch: batch.obs.view(np.uint8)[:, -1:],
    "transposed": lambda batch: batch.obs.T,
    "broadcast": lambda batch: np.broadcast_to(batch.obs[:1], (5, 4)),
    "memoryview": lambda batch: memoryview(batch.obs),
    "from buffer": lambda batch: np.frombuffer(memoryview(batch.obs).cast("B"), dtype=np.int64),
    "rewards": lambda batch: batch.rewards[1:],
    "flag": lambda batch: batch.truncations[:0],
    "infos": lambda batch: batch.infos,
    "extras": lambda batch: batch.extras["tag"],
    "dlpack": lambda batch: np.from_dlpack(batch.obs),
    "same array in another shape": lambda batch: _in_another_shape(batch.obs),
}
COPIES: dict[str, Callable[[Batch], Any]] = {
    "copy": lambda batch: batch.obs.copy(),
    "scalar": lambda batch: batch.obs[0],
    "list": lambda batch: batch.rewards.tolist(),
    "stack": lambda batch: batch.infos.stack(),
    "info dict": lambda batch: batch.infos[0],
    "iterator": lambda batch: iter(batch.infos),  # `iter` has built all infos
    "reward sum": lambda batch: batch.rewards.sum(),
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch.obs)),
}


class NumberInfoEnv(CountingEnv):
    """An env with a number in its infos, so that the frame has a column for it."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"number": 1}


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@pytest.mark.parametrize("kind", DERIVED)
def test_every_view_of_a_frame_holds_it(kind: str) -> None:
    with begun([NumberInfoEnv] * 2, backend="serial", frames=2, extras={"tag": lambda env: env.tag}) as pool:
        pool.step([5, 6])
        batch = pool.step([5, 6])
        place, values = address(batch.obs), batch.obs.tolist()
        held = DERIVED[kind](batch)
        del batch
        for _ in range(10):
            assert not is_view(pool.step([7, 8]).obs)  # the caller holds the only frame that the pool may lend
        del held
        batch = pool.step([9, 9])
        assert is_view(batch.obs)
        assert values[0][3] == 5
        assert place in arenas()[0]


@pytest.mark.parametrize("kind", COPIES)
def test_copies_do_not_hold_the_frame(kind: str) -> None:
    with begun(with_infos(2, lambda tag, count: {"n": count, "v": np.arange(3)}), backend="serial", frames=2) as pool:
        pool.step([1, 1])
        batch = pool.step([1, 1])
        kept = COPIES[kind](batch)
        del batch
        assert is_view(pool.step([0, 0]).obs)
        assert kept is not None


@given(st.lists(st.one_of(st.just(None), st.integers(0, 40)), max_size=40), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_holding_and_dropping_in_any_order(plan: list[int | None], frames: int) -> None:
    """None steps the pool. A number drops one of the held batches."""
    with Pool(counting(3), backend="serial", frames=frames) as pool:
        held = [(pool.reset(), [0.0] * 3)]
        for i, kind in enumerate(plan):
            if kind is None:
                held.append((pool.step([i, i + 1, i + 2]), [i, i + 1, i + 2]))
            elif held:
                held.pop(kind % len(held))
            for batch, rewards in held:
                assert batch.rewards.tolist() == rewards
        views = [address(batch.obs) for batch, _ in held if is_view(batch.obs)]
        assert len(views) == len(set(views)) <= frames
        del held


# -- longer than the pool --------------------------------------------------------------------------------


@each(backend=BACKENDS, how=["close", "terminate", "delete"])
def test_arrays_outlive_the_pool(how: str, backend: Any) -> None:
    pool: Pool | None = Pool(counting(3), backend=backend, num_workers=1)
    assert pool is not None
    pool.reset()
    batch = pool.step([1, 2, 3])
    part = batch.obs[1:, 3]
    infos = batch.infos
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("remuda")]
    if how == "delete":
        collected = weakref.ref(pool)
        pool = None
        gc.collect()
        assert collected() is None
    else:
        pool.close(terminate=how == "terminate")
    assert is_view(part)
    assert part.tolist() == [2, 3]
    part += 1
    assert batch.obs[:, 3].tolist() == [1, 3, 4]
    assert list(infos) == [{}, {}, {}]
    del batch, infos
    gc.collect()
    assert is_view(part)
    assert part.tolist() == [3, 4]
    del part, pool
    for thread in threads:  # a thread holds the memory until it ends
        thread.join()
    collect()
    assert not arenas()


# -- copies ----------------------------------------------------------------------------------------------


def test_partial_batches_are_copies() -> None:
    with begun(counting(4), num_workers=2) as pool:
        pool.send([1, 2], env_ids=[3, 0])
        first = pool.recv()
        assert sorted(zip(first.env_ids.tolist(), first.rewards.tolist(), strict=True)) == [(0, 2.0), (3, 1.0)]
        pool.send([1, 2, 3, 4])
        parts = [pool.recv(min_envs=1, max_envs=1) for _ in range(4)]
        assert sorted(int(part.env_ids[0]) for part in parts) == [0, 1, 2, 3]
        for part in [first, *parts]:
            assert not any(is_view(array) for array in arrays_of(part))
            assert all(array.flags.owndata and array.flags.writeable for array in arrays_of(part))
        assert is_view(pool.step([0] * 4).obs)


def test_frames_received_in_parts_are_reused() -> None:
    """A frame returns to the pool even if it was received in pieces, discarded, or partly failed."""
    with begun(counting(3), backend="serial", frames=2) as pool:
        for _ in range(10):
            pool.send([1, 2, 3])
            assert len(pool.recv(max_envs=1)) == 1
            assert len(pool.recv(max_envs=1)) == 1
            pool.send([4], env_ids=pool.recv(max_envs=1).env_ids)
            pool.recv()
            pool.send([1, 2, 3])
            pool.discard()
            assert is_view(pool.step([1, 2, 3]).obs)


# -- sizes -----------------------------------------------------------------------------------------------


def test_a_pool_reserves_its_memory_at_the_start_or_is_refused() -> None:
    with pytest.raises(MemoryError, match=r"expected \d+ MB of free memory for the pool's batches, got \d+ MB"):
        Pool(counting(1000), num_workers=1, frames=63, observation_space=spaces.Box(0, 1, (1 << 24,), np.uint8))
    assert not arenas()


# -- array objects that are made again -------------------------------------------------------------------


def _give_shape(array: Any) -> None:
    array.shape = (*reversed(array.shape),)


def _give_dtype(array: Any) -> None:
    array.dtype = np.dtype(f"V{array.itemsize}")


@pytest.mark.parametrize("change", [lambda array: array.setflags(write=False), _give_shape, _give_dtype])
@pytest.mark.parametrize("is_held", [False, True])
def test_changes_to_an_array_object_do_not_affect_later_batches(is_held: bool, change: Callable[[Any], None]) -> None:
    with Pool(counting(2), backend="serial", frames=16) as pool:
        before = pool.reset()
        kinds = [(array.shape, array.dtype, str(array.flags)) for array in arrays_of(before)]
        held = []
        for i in range(6):
            batch = pool.step([i, i])
            assert [(array.shape, array.dtype, str(array.flags)) for array in arrays_of(batch)] == kinds
            assert batch.obs[:, 3].tolist() == [i, i]
            for array in arrays_of(batch):
                change(array)
            held += [batch] * is_held


def test_an_array_with_a_weak_reference_ends_when_dropped() -> None:
    """The weak reference ends with the batch and never refers to an array with another batch's values."""
    with begun(counting(2), num_workers=1) as pool:
        ended: list[int] = []
        for i in range(8):
            batch = pool.step([i, i])
            obs = weakref.ref(batch.obs, lambda _, i=i: ended.append(i))
            kept = obs()
            assert kept is not None
            del batch
            pool.step([99, 99])
            assert kept[:, 3].tolist() == [i, i]
            del kept
            pool.step([99, 99])
            assert obs() is None
        assert ended == list(range(8))


# -- batches and their copies ----------------------------------------------------------------------------


def test_arrays_are_made_once_can_be_set_and_outlive_the_pool() -> None:
    with begun(counting(3), num_workers=1) as pool:
        batch = pool.step([3, 4, 5])
        assert batch.obs is batch.obs
        assert batch.rewards is batch.rewards
        batch.rewards *= 2
        assert batch.rewards.tolist() == [6.0, 8.0, 10.0]
        batch.obs = batch.obs[::-1]
        assert batch.obs[:, 3].tolist() == [5, 4, 3]
    assert batch.terminations.tolist() == [False] * 3  # the array is created only now
    assert batch.truncations is batch.truncations
    assert batch.env_ids.tolist() == [0, 1, 2]


def test_a_copy_of_a_batch_has_the_same_values_and_a_deep_copy_its_own_arrays() -> None:
    with begun([NestedEnv] * 2, backend="serial", autoreset="same_step", frames=2, seed=0) as pool:
        for _ in range(12):
            batch = pool.step({"push": np.zeros((2, 2)), "keys": ([0, 0], np.zeros((2, 2), int))})
            for other in (copy.copy(batch), copy.deepcopy(batch)):
                assert type(other) is Batch
                assert other.has_infos == batch.has_infos
                for name in ("env_ids", "obs", "rewards", "terminations", "truncations", "final_obs"):
                    np.testing.assert_equal(getattr(other, name), getattr(batch, name))
                assert repr(other.list_infos()) == repr(batch.list_infos())
                assert repr(other.stack_infos()) == repr(batch.stack_infos())
        first = repr(batch.obs)
        batch.obs["image"][:] = 0
        batch.rewards[:] = 99
        assert repr(other.obs) == first != repr(batch.obs)
        assert 99 not in other.rewards
    with begun(hooked(2, step=raise_value_error), backend="serial", faults="restart", seed=0) as pool:
        batch = pool.step([0, 0])
        fault, other = (one.infos[1]["fault"] for one in (batch, copy.deepcopy(batch)))
        assert str(other) == str(fault) and repr(other.error) == repr(fault.error)


def test_a_batch_in_a_reference_cycle_is_collected() -> None:
    with Pool(counting(2), num_workers=1, frames=2) as pool:
        batch: Any = pool.reset()
        array = batch.rewards
        batch.itself, gone = batch, weakref.ref(batch)
        del batch
        gc.collect()
        assert gone() is None
        assert array.tolist() == [0.0, 0.0]


def test_a_closed_pool_is_freed_without_a_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        pool = begun(counting(2), backend="serial")
        pool.step([1, 1])
        pool.close()
        gone = weakref.ref(pool)
        del pool
        assert gone() is None
    finally:
        gc.enable()


# -- arrays that other libraries make of a batch's arrays ------------------------------------------------

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


def address_of(made: Any) -> int:
    if hasattr(made, "unsafe_buffer_pointer"):
        return int(made.unsafe_buffer_pointer())
    return int(made.data_ptr() if hasattr(made, "data_ptr") else made.ctypes.data)


@pytest.mark.parametrize("name", EXPORTS)
def test_an_exported_array_shares_the_frame_holds_its_lease_and_outlives_the_pool(name: str) -> None:
    import_or_skip(EXPORTS[name][0])
    with begun(ENVS, backend="serial", frames=2, seed=0) as pool:
        batch = pool.step(LEFT)
        made, place, values = export(name, batch.obs), address(batch.obs), batch.obs.tolist()
        assert address_of(made) == place
        del batch
        for _ in range(5):  # the exported array holds the only frame that the pool may lend
            assert not is_view(pool.step(RIGHT).obs)
        assert np.asarray(made).tolist() == values
        del made
        batch = pool.step(LEFT)
        assert is_view(batch.obs)
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
