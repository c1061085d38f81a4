"""An exception that the caller keeps does not keep the pool's memory. Its frames refer to no rollout or batch."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from arena_views import arenas
from pool_envs import begun, counting
from rollout_envs import FailingEnv, NumberInfoEnv, fill

import remuda
from remuda import EnvError, Pool


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
