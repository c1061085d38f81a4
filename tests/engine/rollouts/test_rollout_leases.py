"""Leases of rollouts: held arrays are not overwritten, and memory is allocated only when it is needed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from arena_views import address, is_view
from pool_envs import begun, counting
from rollout_envs import ImageEnv, fill


def test_held_rollouts_keep_their_memory_and_dropped_ones_free_it() -> None:
    with begun(counting(3), num_workers=1) as pool:
        held = fill(pool.rollout(6)).obs[2:4]
        before, place = held.copy(), address(held)
        others = [fill(pool.rollout(6)) for _ in range(3)]
        assert len({place - 2 * others[0].obs[0].nbytes, *(address(one.obs) for one in others)}) == 4
        np.testing.assert_array_equal(held, before)
        free = {address(one.obs) for one in others}
        del others
        assert address(fill(pool.rollout(6)).obs) in free
        assert address(fill(pool.rollout(2)).obs) in free  # a shorter rollout also fits into the freed memory
    np.testing.assert_array_equal(held, before)  # the pool is closed
    assert is_view(held)
    del held


def shared_memory() -> int:
    """Returns the bytes of pools' memory that this process has touched."""
    maps = Path("/proc/self/smaps").read_text()
    sizes = re.findall(r"/memfd:remuda.*\n(?:\w+:.*\n)*?Rss: +(\d+) kB", maps)
    return 1024 * sum(map(int, sizes))


def test_rollouts_allocate_no_more_memory_than_they_need() -> None:
    with begun([ImageEnv] * 4, num_workers=1) as pool:
        frame = 4 * 64 * 64 * 3
        at_first = shared_memory()
        assert at_first < 20 * frame
        fill(pool.rollout(99))
        assert shared_memory() - at_first >= 100 * frame
        for steps in (99, 40, 99, 99):
            fill(pool.rollout(steps))
        assert shared_memory() - at_first < 110 * frame
        fill(pool.rollout(149))  # this rollout needs more memory than the earlier ones, so the pool frees theirs
        assert shared_memory() - at_first < 160 * frame


def test_a_rollout_without_enough_memory_is_refused_without_effect() -> None:
    with begun([ImageEnv] * 4, num_workers=1) as pool:
        with pytest.raises(MemoryError, match=r"expected \d+ MB of free memory for a rollout of 100000000 steps of 4"):
            pool.rollout(100_000_000)
        assert (pool.step(np.zeros(4, int)).obs == 1).all()
        fill(pool.rollout(3))


def test_a_forked_child_has_its_own_copy_of_a_rollout() -> None:
    with begun(counting(3), num_workers=1) as pool:
        rollout = fill(pool.rollout(6), 1)
        before = rollout.obs.copy(), rollout.actions.copy(), rollout.rewards.copy()
        go_on, answers = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go_on[0], 1)
            same = all(map(np.array_equal, (rollout.obs, rollout.actions, rollout.rewards), before))
            rollout.obs[:] = 77
            os.write(answers[1], b"y" if same else b"n")
            os._exit(0)
        rollout.obs[:] = 55
        os.write(go_on[1], b"g")
        assert os.read(answers[0], 1) == b"y"
        os.waitpid(child, 0)
        assert (rollout.obs == 55).all()
        for fd in (*go_on, *answers):
            os.close(fd)
