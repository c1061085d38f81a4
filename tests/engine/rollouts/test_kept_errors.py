"""An exception that the caller keeps does not keep the pool's memory. Its frames refer to no rollout or batch."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from arena_views import arenas
from pool_envs import counting
from rollout_envs import FailingEnv, NumberInfoEnv, fill

import remuda
from remuda import Pool


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
    "batch to nothing": lambda pool: pool.step([1, 1]).to("nothing"),
    "info": lambda pool: pool.step([1, 1]).infos[9],
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
    error = kept_error(CALLS[call], [NumberInfoEnv, FailingEnv])
    assert error.__traceback__ is not None
    assert not arenas()


INFOS: dict[str, Callable[[Pool], Any]] = {
    "one": lambda pool: pool.step([1, 1]).infos[0],
    "some": lambda pool: pool.step([1, 1]).infos[:2],
    "each": lambda pool: list(pool.step([1, 1]).infos),
    "list": lambda pool: pool.step([1, 1]).list_infos(),
    "stack": lambda pool: pool.step([1, 1]).stack_infos(),
}


@pytest.mark.parametrize("read", INFOS)
def test_an_error_of_an_info_does_not_keep_memory(read: str) -> None:
    error = kept_error(INFOS[read], [UnloadableEnv] * 2)
    assert isinstance(error, remuda.EnvError)
    assert not arenas()


def test_the_callers_frames_keep_their_variables() -> None:
    def policy(obs: Any) -> Any:
        value = "kept"
        raise KeyError(value)

    with Pool(counting(2), num_workers=1) as pool:
        pool.reset()
        with pytest.raises(KeyError) as raised:
            next(remuda.collect(pool, policy, steps=4, parts=1))
        frames = [entry.frame.f_locals for entry in raised.traceback]
        assert frames[-1]["value"] == "kept"
        # remuda's own frames are cleared, and the caller's are not
        assert [entry.name for entry in raised.traceback][-2:] == ["_fill", "policy"]
        del frames, raised
