"""Calls of envs end once all envs have answered, raise all failures together, and never delay other envs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_envs import (
    CountingEnv,
    HookedEnv,
    begun,
    counting,
    gated,
    make_gates,
    rewards,
)

from remuda import EnvError, Pool


def test_a_call_waits_for_its_env_and_for_no_other(tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with begun(gated([gate, None])) as pool:
        pool.send([1, 2])
        gate.await_arrival()
        late = pool.call_async("get_wrapper_attr", "total_steps")
        assert pool.call("get_wrapper_attr", "total_steps", env_ids=[1]) == [1]
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"1 of 2 envs have not answered within 0"):
                late.result(timeout=0)
        assert not late.done
        gate.open()
        assert late.result() == [1, 1]
        assert rewards(pool.recv()) == {0: 1.0, 1: 2.0}


def test_more_calls_in_flight_than_fit_in_the_ring() -> None:
    with begun(counting(200), num_workers=2) as pool:
        pool.send([1] * 200)
        calls = [pool.call_async("echo", i) for i in range(20)]
        for i, call in reversed(list(enumerate(calls))):
            assert call.result() == [((i,), {})] * 200
        assert set(rewards(pool.recv()).values()) == {1.0}


def test_calls_and_attributes() -> None:
    with Pool(counting(3), backend="serial", num_workers=2) as pool:
        assert pool.call("echo", 1, x=2) == [((1,), {"x": 2})] * 3
        assert pool.call("tag", env_ids=[2, 0]) == [2, 0]
        assert pool.apply(lambda env, a, b=0: env.tag + a + b, 10, b=5, env_ids=[1]) == [16]
        assert pool.apply(lambda env, array: env.tag + int(array.sum()), np.arange(3), env_ids=[1]) == [4]
        assert pool.apply_async(lambda env, a: a, env_ids=[2, 1], per_env_args=[("x",), ("y",)]).result() == ["x", "y"]
        pool.set_attr("tag", 7)
        pool.set_attrs("tag", [8, 9], env_ids=[2, 0])
        assert pool.get_attr("tag") == [9, 7, 8]
        assert [frame.shape for frame in pool.render()] == [(2, 2, 3)] * 3
        array = pool.apply(lambda env: np.arange(3))[0]
        array[:] = 5  # the caller may write to the array
        call = pool.call_async("echo")
        first = call.result()
        first.clear()
        assert len(call.result()) == 3


class Poison:
    def __reduce__(self) -> Any:
        return int, ("not a number",)


def test_an_answer_that_cannot_be_unpickled_fails_only_its_call() -> None:
    with begun(counting(2), num_workers=1) as pool:
        before, bad, after = pool.call_async("pid"), pool.apply_async(lambda env: Poison()), pool.call_async("pid")
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]
        with pytest.raises(EnvError, match="envs 0, 1 .* in call: .*not a number") as raised:
            bad.result()
        assert isinstance(raised.value.__cause__, ValueError)
        assert len(before.result()) == len(after.result()) == 2


def test_an_info_that_cannot_be_unpickled_raises_only_when_it_is_read() -> None:
    def step(env: Any, action: Any) -> Any:
        return env.observe(), 3.0, False, False, {"new": 1, "poison": Poison()}

    with begun([CountingEnv, lambda: HookedEnv(step=step)], num_workers=1) as pool:
        for _ in range(3):
            batch = pool.step([1, 2])
            assert batch.rewards.tolist() == [1, 3]
            assert batch.infos[0] == {}
            with pytest.raises(EnvError, match=r"env 1 \(worker 0\) raised ValueError in step: .*not a number"):
                batch.infos[1]
