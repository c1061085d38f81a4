"""Memory of rollouts: held arrays are not overwritten, and memory is allocated only when it is needed.

An exception that the caller keeps does not keep the pool's memory. Its frames refer to no rollout or batch.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arena_views import address, arenas, is_view
from pool_envs import begun, counting
from rollout_envs import FailingEnv, ImageEnv, NumberInfoEnv, fill

import remuda
from remuda import EnvError, Pool


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


# -- exceptions that are kept ---------------------------------------------------------------------------------


class Unloadable:
    """An object that can be pickled but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


class UnloadableEnv(NumberInfoEnv):
    """An env with infos that have numbers and an object that cannot be unpickled."""

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "odd": Unloadable()}


def exits(env: Any) -> None:
    os._exit(1)


def iterates(pool: Pool) -> Any:
    turns = iter(pool.rollout(5))
    next(turns).act([1, 4])
    next(turns)


def does_not_act(pool: Pool) -> Any:
    turns = iter(pool.rollout(5))
    next(turns)
    next(turns)


def begins_with_a_death(pool: Pool) -> Any:
    fill(pool.rollout(3))
    pool.apply_async(exits, env_ids=[1])
    pool.rollout(3)


def sent(pool: Pool, rollout: Any) -> Any:
    pool.send([1, 4])
    return rollout


CALLS: dict[str, Callable[[Pool], Any]] = {
    "iterate": iterates,
    "no act": does_not_act,
    "death": begins_with_a_death,
    "bad actions": lambda pool: next(iter(pool.rollout(5))).act([1]),
    "bad column": lambda pool: next(pool.rollout(5).partial(1)).act([1, 1], value=[1]),
    "close": lambda pool: sent(pool, pool.rollout(5)).close(),
    "columns": lambda pool: pool.rollout(5, ["value"]),  # type: ignore[arg-type]
    "memory": lambda pool: pool.rollout(10**9),
    "partial": lambda pool: pool.rollout(5).partial(9),
    "to while open": lambda pool: pool.rollout(5).to("cpu"),
    "to nothing": lambda pool: fill(pool.rollout(5)).to("nothing"),
    "gae": lambda pool: fill(pool.rollout(5)).gae([1]),
    "pickle": lambda pool: pickle.dumps(pool.rollout(5)),
    "collect": lambda pool: next(remuda.collect(pool, lambda obs: [1, 4], steps=5, parts=1)),
    "collect in parts": lambda pool: next(remuda.collect(pool, lambda obs: [4], steps=5, parts=2)),
    "step": lambda pool: pool.step([1, 4]),
    "recv": lambda pool: pool.recv(),
    "send": lambda pool: pool.send([1, 2, 3]),
    "split": lambda pool: sent(pool, pool).split(2),
    "batch to nothing": lambda pool: pool.step([1, 1]).to("nothing"),
    "no such info": lambda pool: pool.step([1, 1]).infos[9],
    "info": lambda pool: pool.step([1, 1]).infos[0],
    "infos": lambda pool: pool.step([1, 1]).infos[:2],
    "infos, each": lambda pool: list(pool.step([1, 1]).infos),
    "infos, listed": lambda pool: pool.step([1, 1]).list_infos(),
    "infos, stacked": lambda pool: pool.step([1, 1]).stack_infos(),
    "get_state": lambda pool: pool.get_state(),
    "replace": lambda pool: pool.replace([0], [exits]),  # type: ignore[list-item]
}


def kept_error(call: Callable[[Pool], Any], env_fns: Any, **options: Any) -> BaseException:
    """Returns the exception of a call, with its traceback from the call on. The pool is closed."""
    pool = Pool(env_fns, num_workers=2, backend="process" if call is begins_with_a_death else "serial", **options)
    pool.reset()
    try:
        for _ in range(2):
            pool.step([1, 1])  # so that infos have columns
        with pytest.raises(Exception) as raised:  # noqa: PT011  # each its own
            call(pool)
        return raised.value
    finally:
        pool.close()


@pytest.mark.parametrize("call", CALLS)
def test_an_error_does_not_keep_memory(call: str) -> None:
    if "nothing" in call:
        pytest.importorskip("torch")
    is_info = call.startswith("info")
    error = kept_error(CALLS[call], [UnloadableEnv] * 2 if is_info else [NumberInfoEnv, FailingEnv])
    assert error.__traceback__ is not None
    assert isinstance(error, EnvError) or not is_info
    assert not arenas()


def test_the_callers_frames_keep_their_variables() -> None:
    def policy(obs: Any) -> Any:
        value = "kept"
        raise KeyError(value)

    with begun(counting(2), num_workers=1) as pool:
        with pytest.raises(KeyError) as raised:
            next(remuda.collect(pool, policy, steps=4, parts=1))
        frames = [entry.frame.f_locals for entry in raised.traceback]
        assert frames[-1]["value"] == "kept"
        # remuda's own frames are cleared, and the caller's are not
        assert [entry.name for entry in raised.traceback][-2:] == ["_fill", "policy"]
        del frames, raised
