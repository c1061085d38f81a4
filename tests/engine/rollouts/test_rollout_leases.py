"""Rollouts are leased: what is held is not overwritten, and memory is taken where it is needed."""

from __future__ import annotations

import os

import numpy as np
import pytest
from arena_views import address, is_view
from pool_envs import counting
from rollout_envs import ImageEnv, fill

from remuda import Pool


def test_what_is_held_is_not_overwritten_and_what_is_not_is_used_again() -> None:
    with Pool(counting(3), num_workers=1) as pool:
        pool.reset()
        held = fill(pool.rollout(6)).obs[2:4]
        before, where = held.copy(), address(held)
        others = [fill(pool.rollout(6)) for _ in range(3)]
        assert len({where - 2 * others[0].obs[0].nbytes, *(address(one.obs) for one in others)}) == 4
        np.testing.assert_array_equal(held, before)
        free = {address(one.obs) for one in others}
        del others
        assert address(fill(pool.rollout(6)).obs) in free
        assert address(fill(pool.rollout(2)).obs) in free  # a shorter one fits, too
    np.testing.assert_array_equal(held, before)  # the pool is closed
    assert is_view(held)
    del held


def shared_memory() -> int:
    """Bytes of pools that this process sees."""
    with open("/proc/self/smaps") as smaps:
        lines = smaps.read().split("\n")
    found, is_ours = 0, False
    for line in lines:
        words = line.split()
        if words and "-" in words[0] and not words[0].endswith(":"):
            is_ours = "memfd:remuda" in line
        elif is_ours and words and words[0] == "Rss:":
            found += int(words[1]) * 1024
    return found


def test_memory_is_taken_when_it_is_needed_and_no_more_than_that() -> None:
    with Pool([ImageEnv] * 4, num_workers=1) as pool:
        pool.reset()
        frame = 4 * 64 * 64 * 3
        at_first = shared_memory()
        assert at_first < 20 * frame
        fill(pool.rollout(99))
        assert shared_memory() - at_first >= 100 * frame
        for steps in (99, 40, 99, 99):
            fill(pool.rollout(steps))
        assert shared_memory() - at_first < 110 * frame
        fill(pool.rollout(149))  # what the others had does not do: it is given back
        assert shared_memory() - at_first < 160 * frame


def test_memory_that_is_not_there_is_an_error_and_nothing_has_changed() -> None:
    with Pool([ImageEnv] * 4, num_workers=1) as pool:
        pool.reset()
        with pytest.raises(MemoryError, match=r"expected \d+ MB of free memory for a rollout of 100000000 steps of 4"):
            pool.rollout(100_000_000)
        assert (pool.step(np.zeros(4, int)).obs == 1).all()
        fill(pool.rollout(3))


def test_a_child_of_fork_sees_what_its_parent_saw() -> None:
    with Pool(counting(3), num_workers=1) as pool:
        pool.reset()
        rollout = fill(pool.rollout(6), 1)
        before = rollout.obs.copy(), rollout.actions.copy(), rollout.rewards.copy()
        go_on, told = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go_on[0], 1)
            same = all(map(np.array_equal, (rollout.obs, rollout.actions, rollout.rewards), before))
            rollout.obs[:] = 77
            os.write(told[1], b"y" if same else b"n")
            os._exit(0)
        rollout.obs[:] = 55
        os.write(go_on[1], b"g")
        assert os.read(told[0], 1) == b"y"
        os.waitpid(child, 0)
        assert (rollout.obs == 55).all()
        for fd in (*go_on, *told):
            os.close(fd)
