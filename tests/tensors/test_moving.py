"""Tensors of a batch: shared on the CPU, and copied to a fake GPU that a test can delay while the frame is leased."""

from __future__ import annotations

import dataclasses
import gc
import mmap
import os
import re
import signal
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from cuda_stand_in import Gpu, gpu  # noqa: F401 - a fixture
from gymnasium import spaces
from pool_envs import NestedEnv, TextEnv, begun, counting
from programs import kill

import remuda
from remuda import Pool, TensorBatch, _core
from remuda._tensors import page_locks


def is_leased(pool: Pool) -> bool:
    """Returns True if the only frame that can be lent is leased, so that the next batch is a copy."""
    return _core.arena_of(pool.step(np.zeros(pool.num_envs, int)).obs) is None


def as_arrays(nest: Any) -> Any:
    """Converts a nest of tensors to arrays."""
    if isinstance(nest, dict):
        return {key: as_arrays(value) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(map(as_arrays, nest))
    return nest.numpy() if isinstance(nest, torch.Tensor) else nest


# -- on the CPU -------------------------------------------------------------------------------------------


def test_on_the_cpu_tensors_share_the_frame_and_hold_it() -> None:
    with Pool(counting(3), num_workers=2, frames=2) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        pool.reset()
        batch = pool.step([5, 6, 7])
        tensors = batch.to("cpu", non_blocking=True)
        assert isinstance(tensors, TensorBatch) and len(tensors) == 3
        for name in ("obs", "rewards", "terminations", "truncations"):
            assert getattr(tensors, name).data_ptr() == getattr(batch, name).ctypes.data
        assert tensors.env_ids.tolist() == [0, 1, 2]
        del batch
        assert is_leased(pool)
        assert tensors.obs[:, 3].tolist() == [5, 6, 7]
        del tensors
        assert not is_leased(pool)


def test_nests_keep_their_form_and_their_dtypes() -> None:
    with begun([NestedEnv] * 3, backend="serial", autoreset="same_step", seed=1) as pool:
        for _ in range(12):
            batch = pool.step({"push": np.zeros((3, 2)), "keys": (np.zeros(3, int), np.zeros((3, 2), int))})
            tensors = batch.to("cpu")
            assert str(as_arrays(tensors.obs)) == str(batch.obs)
            assert str(as_arrays(tensors.final_obs)) == str(batch.final_obs)
            assert tensors.obs["pose"][0].dtype == torch.float64
            assert tensors.obs["deep"]["flags"].numpy().tolist() == batch.obs["deep"]["flags"].tolist()
            assert type(tensors.obs["pose"]) is tuple
        assert batch.to("meta").obs["pose"][0].device.type == "meta"


def test_objects_that_are_no_arrays_are_unchanged_and_arrays_that_torch_cannot_share_are_copied() -> None:
    with begun([TextEnv] * 2, backend="serial") as pool:
        tensors = pool.step(("a", "bc")).to("cpu")
        assert (tensors.obs, tensors.rewards.tolist()) == (("a", "bc"), [1.0, 2.0])
    graph = spaces.Graph(spaces.Box(0, 1, (2,)), None).sample()
    assert remuda.to_torch([graph, None, "text", 3]) == [graph, None, "text", 3]
    fixed = np.arange(3)
    fixed.flags.writeable = False  # torch cannot share this array, nor one with a negative stride
    assert remuda.to_torch({"fixed": fixed})["fixed"].tolist() == [0, 1, 2]
    assert remuda.to_torch(np.arange(3)[::-1]).tolist() == [2, 1, 0]


def test_the_error_for_a_dtype_unknown_to_torch_names_its_place() -> None:
    with pytest.raises(TypeError, match=r"expected arrays of a dtype that torch has, got >f4 at \['a'\]\[1\]; convert"):
        remuda.to_torch({"a": [np.zeros(2), np.zeros(2, ">f4")]})
    with pytest.raises(TypeError, match=r"got <U1; convert"):
        remuda.to_torch(np.array("x"))


def test_out_is_filled_and_must_fit() -> None:
    with begun(counting(2), backend="serial") as pool:
        out = pool.step([1, 2]).to("cpu")
        out = dataclasses.replace(out, **{name: getattr(out, name).clone() for name in ("obs", "rewards")})
        where = out.obs.data_ptr()
        tensors = pool.step([3, 4]).to("cpu", out=out)
        assert tensors.obs is out.obs and out.obs.data_ptr() == where
        assert out.obs[:, 3].tolist() == [3, 4]
        batch = pool.step([5, 6])
        expected = r"out\['obs'\] to be a tensor of shape \(2, 4\) and torch.int64 on cpu, got "
        for wrong, text in (
            (out.obs[:1], rf"{expected}one of shape \(1, 4\)"),
            (out.obs.float(), r"got one of shape \(2, 4\) and torch.float32 on cpu"),
            (out.obs.to("meta"), r"torch.int64 on meta"),
            (None, r"torch.int64 on cpu, got NoneType"),
        ):
            with pytest.raises(ValueError, match=text):
                batch.to("cpu", out=dataclasses.replace(out, obs=wrong))
        assert out.obs[:, 3].tolist() == [3, 4]


# -- on a fake GPU -----------------------------------------------------------------------------------------


def record_first_action(gpu: Gpu, obs: Any, seen: list[int]) -> None:  # noqa: F811
    """Launches a kernel on the caller's stream that records the action in the first row."""
    read = obs.reader()
    gpu.callers.launch(lambda: seen.append(int(read()[0, 3])))


def test_the_lease_is_held_until_the_copy_is_done(gpu: Gpu) -> None:  # noqa: F811
    """The pool steps while the copy is delayed. The copied data must be complete."""
    with (
        begun(counting(3), num_workers=2, frames=2) as pool,
        Pool(counting(3), backend="serial", frames=9) as other,
    ):
        other.reset().to("cuda")
        batch = pool.step([5, 6, 7])
        tensors = batch.to("cuda", non_blocking=True)
        del batch
        gc.collect()
        for _ in range(3):
            assert is_leased(pool)
            other.step([0, 0, 0]).to("cuda", non_blocking=True)  # each copy checks which copies are finished
        assert not (tensors.obs.values() == 5).any()  # the copy has not run yet
        (copies,) = gpu.streams[1:]
        copies.go_on()
        assert tensors.obs.values()[:, 3].tolist() == [5, 6, 7]
        assert tensors.rewards.values().tolist() == [5.0, 6.0, 7.0]
        other.step([0, 0, 0]).to("cuda", non_blocking=True)
        assert not is_leased(pool)


def test_the_callers_stream_waits_for_the_copy_and_the_program_does_not(gpu: Gpu) -> None:  # noqa: F811
    with Pool(counting(2), backend="serial", frames=8) as pool:
        pool.reset().to("cuda", non_blocking=True)  # unchanging columns are copied at the first time, which waits
        gpu.waits, seen = 0, []
        for i in range(3):
            tensors = pool.step([i, i]).to("cuda", non_blocking=True)
            record_first_action(gpu, tensors.obs, seen)
        gpu.callers.go_on()
        assert (gpu.waits, seen) == (0, [])
        gpu.go_on()
        assert seen == [0, 1, 2]


def test_without_a_free_frame_the_copy_waits(gpu: Gpu) -> None:  # noqa: F811
    """The second batch is a copy in memory that is not page-locked."""
    with Pool(counting(2), backend="serial", frames=2) as pool:
        pool.reset().to("cuda")
        gpu.waits, held = 0, []
        for i in range(2):
            held.append(pool.step([i, i]).to("cuda", non_blocking=True))
            assert (gpu.waits > 0) == (i == 1)
        gpu.callers.synchronize()
        assert [tensors.rewards.values().tolist() for tensors in held] == [[0, 0], [1, 1]]


def test_the_pools_memory_is_page_locked_once_until_it_is_freed(gpu: Gpu) -> None:  # noqa: F811
    pool = Pool(counting(2), backend="serial")
    pool.reset().to("cuda")
    batch, locked = pool.reset(), dict(gpu.runtime.locked)
    assert gpu.runtime.calls == len(locked) > 0
    for _ in range(4):
        pool.reset().to("cuda")
    assert gpu.runtime.locked == locked and gpu.runtime.calls == len(locked)
    assert gpu.runtime.has(batch.obs) and gpu.runtime.has(batch.rewards)
    kept = batch.truncations[:1]
    del batch
    pool.close()
    assert gpu.runtime.locked == locked  # an array of the pool is still held
    del kept
    assert (gpu.runtime.locked, gpu.runtime.calls) == ({}, 2 * len(locked))


def test_addresses_without_memory_are_not_page_locked(gpu: Gpu) -> None:  # noqa: F811
    """The arena reserves addresses for later rollouts, up to the memory of the machine."""
    with Pool(counting(2), num_workers=1) as pool:
        batch = pool.reset()
        batch.to("cuda")
        arena = _core.arena_of(batch.obs)
        assert arena is not None
        pages, page = gpu.runtime.locked.items(), mmap.PAGESIZE
        assert all(address % page == size % page == 0 for address, size in pages)
        assert sum(size for _, size in pages) <= sum(size for _, size in arena.lasting) + 2 * len(pages) * page
        assert not _core.Arena.is_sparse or sum(gpu.runtime.locked.values()) < arena.bytes
        del arena
    assert page_locks._whole_pages([(0, 10), (20, 20 + page), (3 * page + 5, 3 * page + 7)]) == [
        (0, 2 * page),  # no page is locked twice
        (3 * page, 4 * page),
    ]


def test_memory_that_cannot_be_page_locked_causes_one_warning(gpu: Gpu) -> None:  # noqa: F811
    gpu.runtime.refuses = True
    with begun(counting(2), backend="serial") as pool:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for i in range(3):
                assert pool.step([i, i]).to("cuda").obs.values()[:, 3].tolist() == [i, i]
        assert re.search(r"could not be page-locked: error 712 \(\d+ MB\); copies", str(warned[0].message))
        assert warned[0].category is RuntimeWarning
        assert (len(warned), gpu.runtime.calls) == (1, 1)
    assert gpu.runtime.calls == 1  # nothing to undo


def test_closing_a_pool_waits_for_its_copies_and_unlocks_its_memory(gpu: Gpu) -> None:  # noqa: F811
    pool = Pool(counting(2), num_workers=1)
    pool.reset()
    tensors = pool.step([3, 4]).to("cuda", non_blocking=True)
    pool.close()
    assert tensors.obs.values()[:, 3].tolist() == [3, 4]
    assert gpu.runtime.locked == {}  # the mapping is gone too, which a fixture checks after every test


def test_device_memory_is_reused_but_not_while_it_is_read(gpu: Gpu) -> None:  # noqa: F811
    with Pool(counting(2), backend="serial") as pool:
        pool.reset().to("cuda")
        seen: list[Any] = []
        for i in range(20):
            tensors = pool.step([i, i]).to("cuda", non_blocking=True)
            record_first_action(gpu, tensors.obs, seen)
            del tensors
            if i % 3 == 2:  # in the other steps the caller's stream is behind
                gpu.go_on()
        gpu.callers.synchronize()
        assert seen == list(range(20))
        assert gpu.blocks < 5 * 6


def test_out_keeps_its_addresses_and_is_not_overwritten_while_it_is_read(gpu: Gpu) -> None:  # noqa: F811
    with Pool(counting(2), backend="serial", frames=8) as pool:
        out, seen = pool.reset().to("cuda"), []
        where, gpu.waits = out.obs.block, 0
        for i in range(4):
            assert pool.step([i, i]).to("cuda", non_blocking=True, out=out).obs is out.obs
            record_first_action(gpu, out.obs, seen)
        assert (gpu.waits, out.obs.block) == (0, where)
        gpu.callers.synchronize()
        assert seen == [0, 1, 2, 3]


def test_partial_batches_are_copied_completely(gpu: Gpu) -> None:  # noqa: F811
    """These batches have their own memory, which is not page-locked, so the call waits."""
    with begun(counting(4), backend="serial") as pool:
        pool.send([7, 8], env_ids=[3, 1])
        batch = pool.recv()
        tensors = batch.to("cuda", non_blocking=True)
        gpu.callers.synchronize()
        assert tensors.env_ids.values().tolist() == batch.env_ids.tolist()
        assert tensors.rewards.values().tolist() == batch.rewards.tolist()
        assert gpu.runtime.calls == 0


def test_a_copy_that_fails_half_way_keeps_the_lease(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def copy(target: Any, source: Any) -> Any:
        if source.dtype == torch.float64:
            raise RuntimeError("CUDA error: an illegal memory access")
        return enqueue(target, source)

    with Pool(counting(2), backend="serial", frames=2) as pool:
        pool.reset().to("cuda")
        enqueue = gpu.enqueue_copy
        monkeypatch.setattr(gpu, "enqueue_copy", copy)
        with pytest.raises(RuntimeError, match="an illegal memory access"):
            pool.step([3, 4]).to("cuda", non_blocking=True)
        assert is_leased(pool)
        monkeypatch.undo()
        gpu.streams[1].go_on()


def test_a_dead_worker_does_not_change_data_that_is_being_copied(gpu: Gpu) -> None:  # noqa: F811
    with begun(counting(4), num_workers=2, faults="restart", frames=3) as pool:
        tensors = pool.step([5, 6, 7, 8]).to("cuda", non_blocking=True)
        kill(pool, 0, signal.SIGKILL)
        after = pool.step([1, 1, 1, 1]).to("cuda", non_blocking=True)
        gpu.callers.synchronize()
        assert tensors.rewards.values().tolist() == [5, 6, 7, 8]
        assert after.rewards.values()[2:].tolist() == [1, 1]
        assert after.truncations.values().tolist() == [True, True, False, False]


def test_parts_share_their_unchanging_columns(gpu: Gpu) -> None:  # noqa: F811
    with Pool(counting(4), num_workers=2) as pool:
        for part in pool.split(2):
            part.reset().to("cuda")
            gpu.waits = 0
            tensors = part.step([1, 2]).to("cuda", non_blocking=True)
            assert gpu.waits == 0
            gpu.callers.synchronize()
            assert tensors.env_ids.values().tolist() == part.env_ids.tolist()
            assert tensors.rewards.values().tolist() == [1.0, 2.0]


def test_a_forked_child_unlocks_nothing(gpu: Gpu) -> None:  # noqa: F811
    """CUDA cannot be used in a forked child, which has its own copy of the batch."""
    pool = Pool(counting(2), num_workers=1)
    batch = pool.reset()
    batch.to("cuda")
    calls = gpu.runtime.calls
    ends: list[int] = []
    arena = _core.arena_of(batch.obs)
    assert arena is not None
    arena.before_end(lambda: ends.append(1))
    del arena
    pid = os.fork()
    if pid == 0:
        try:
            del pool, batch
            gc.collect()
            os._exit(0 if (len(ends), gpu.runtime.calls) == (1, calls) else 1)
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    pool.close()
    del batch
    assert (len(ends), gpu.runtime.calls, gpu.runtime.locked) == (1, 2 * calls, {})
