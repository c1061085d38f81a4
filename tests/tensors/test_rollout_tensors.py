"""Rollouts as tensors: shared on the CPU, and copied to a fake GPU that a test can delay while the memory is leased."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from arena_views import address
from cuda_stand_in import Gpu, gpu  # noqa: F401 - a fixture
from pool_envs import NestedEnv, begun, counting
from rollout_envs import ImageEnv, fill

import remuda
from remuda import Pool, TensorRollout

NAMES = ("obs", "actions", "rewards", "terminations", "truncations")


def filled(pool: Pool, steps: int, action: int) -> Any:
    """Fills a rollout with this action in every step."""
    rollout = pool.rollout(steps)
    for step in rollout:
        step.act(np.full(len(step.env_ids), action), value=np.full(len(step.env_ids), action, np.float32))
    return rollout


# -- on the CPU -------------------------------------------------------------------------------------------


def test_on_the_cpu_tensors_share_the_rollout_and_hold_it() -> None:
    with begun(counting(3), num_workers=2) as pool:
        rollout = filled(pool, 4, 7)
        tensors = rollout.to("cpu", non_blocking=True)
        assert isinstance(tensors, TensorRollout) and len(tensors) == 4
        for name in NAMES:
            assert getattr(tensors, name).data_ptr() == getattr(rollout, name).ctypes.data
        assert tensors.columns["value"].data_ptr() == rollout.columns["value"].ctypes.data
        assert tensors.valid.tolist() == rollout.valid.tolist()
        assert tensors.episode_starts.tolist() == rollout.episode_starts.tolist()
        assert "4 steps of 3 envs on cpu" in repr(tensors)
        before = address(rollout.obs)
        del rollout
        assert address(filled(pool, 4, 1).obs) != before
        assert (tensors.actions == 7).all()
        del tensors


def test_nests_extras_and_final_observations_are_converted() -> None:
    extras: Any = {"one": lambda env: 1.0}
    with begun([NestedEnv] * 3, backend="serial", autoreset="same_step", extras=extras, seed=1) as pool:
        actions = {"push": np.zeros((3, 2)), "keys": (np.zeros(3, int), np.zeros((3, 2), int))}
        rollout = pool.rollout(12)
        for step in rollout:
            step.act(actions)
        tensors = rollout.to("cpu")
        assert tensors.obs["deep"]["flags"].numpy().tolist() == rollout.obs["deep"]["flags"].tolist()
        assert tensors.final_obs["deep"]["flags"].shape == (12, *tensors.obs["deep"]["flags"].shape[1:])
        assert tensors.actions["keys"][1].shape == (12, 3, 2)
        assert (tensors.extras["one"] == 1).all() and tensors.extras["one"].shape == (13, 3)
        assert rollout.to("meta").rewards.device.type == "meta"


# -- on a fake GPU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["process", "serial"])
def test_the_memory_is_leased_until_the_copy_is_done(gpu: Gpu, backend: Any) -> None:  # noqa: F811
    """Other rollouts are filled while the copy is delayed. The copied data must be complete."""
    with begun(counting(3), backend=backend, num_workers=2) as pool:
        places = [filled(pool, 4, 0) for _ in range(3)]
        del places
        rollout = filled(pool, 4, 5)
        where, tensors = address(rollout.obs), rollout.to("cuda", non_blocking=True)
        del rollout
        gc.collect()
        others = [filled(pool, 4, 9) for _ in range(2)]
        assert where not in {address(other.obs) for other in others}
        assert not (tensors.actions.values() == 5).any()  # the copy has not run yet
        gpu.go_on()
        assert (tensors.actions.values() == 5).all() and (tensors.obs.values()[1:, :, 3] == 5).all()
        assert tensors.columns["value"].values().tolist() == [[5.0] * 3] * 4
        assert tensors.valid.values().all()
        del others
        filled(pool, 4, 1).to("cuda")  # releases memory with finished copies
        assert where in {address(one.obs) for one in [filled(pool, 4, 1), filled(pool, 4, 1)]}


def test_columns_are_page_locked_once(gpu: Gpu) -> None:  # noqa: F811
    """Two rollouts may share a page, which must not be locked twice."""
    with begun(counting(3), num_workers=1) as pool:
        held = [filled(pool, 5, i) for i in range(2)]
        for rollout in held:
            rollout.to("cuda")
        for rollout in held:
            assert all(gpu.runtime.has(getattr(rollout, name)) for name in NAMES)
        del rollout
        calls = []
        for action in range(12):
            held[action % 2] = filled(pool, 5, action)
            held[action % 2].to("cuda")
            calls.append(gpu.runtime.calls)
        del held
        assert calls[-1] == calls[5]  # by now there are three places in memory, and each has been copied from
    gc.collect()
    assert gpu.runtime.locked == {}


def test_steps_of_a_page_locked_rollout_are_copied_without_a_wait(gpu: Gpu) -> None:  # noqa: F811
    with Pool([ImageEnv] * 2, num_workers=1) as pool:
        pool.reset().to("cuda")
        filled(pool, 3, 0).to("cuda")
        gpu.waits, seen = 0, []
        for step in pool.rollout(3):
            seen.append(remuda.to_torch(step.obs, "cuda", non_blocking=True))
            step.act([1, 1])
        assert gpu.waits == 0
        gpu.go_on()
        first = int(seen[0].values()[0, 0, 0, 0])
        assert [int(obs.values()[0, 0, 0, 0]) for obs in seen] == [first, first + 1, first + 2]


def test_memory_is_unlocked_before_it_is_given_back(gpu: Gpu) -> None:  # noqa: F811
    with begun([ImageEnv] * 2, num_workers=1) as pool:
        tensors = filled(pool, 3, 5).to("cuda", non_blocking=True)
        gc.collect()
        longer = fill(pool.rollout(30))  # does not fit, so free rollouts give back their memory
        assert (tensors.actions.values() == 5).all()  # this has waited for the copy
        assert gpu.runtime.locked == {}
        gpu.waits = 0
        copied = longer.to("cuda")
        assert gpu.runtime.has(longer.obs) and gpu.runtime.has(pool.step([1, 1]).obs)
        np.testing.assert_array_equal(copied.obs.values(), longer.obs)
        del longer


# -- on a real GPU -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_real_gpu_gets_whole_rollouts_from_page_locked_memory() -> None:
    with begun([ImageEnv] * 4, num_workers=2) as pool:
        for steps in (8, 8, 4, 30, 8):
            rollout = fill(pool.rollout(steps))
            tensors = rollout.to("cuda", non_blocking=True)
            assert torch.from_numpy(rollout.obs).is_pinned()
            assert torch.equal(tensors.obs.cpu(), torch.from_numpy(rollout.obs))
            assert torch.equal(tensors.valid.cpu(), torch.from_numpy(rollout.valid))
