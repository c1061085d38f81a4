"""Sends and receives in any order: each action has exactly one result, from the right env, however late.

Calls of envs end once all envs have answered, raise all failures together, and never delay other envs. Any number of
envs and workers works, and no more workers run at once than the limit allows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pairs import each
from pool_envs import (
    CountingEnv,
    EnvFn,
    Gate,
    Gauge,
    HookedEnv,
    NestedEnv,
    TextEnv,
    begun,
    counting,
    gated,
    hooked,
    make_gates,
    rewards,
)

from remuda import EnvError, InvalidActionError, Pool, StateError

# -- partial sends and receives --------------------------------------------------------------------------


def test_sends_and_receives_in_parts_and_limits_of_recv() -> None:
    with begun(counting(4), backend="serial", num_workers=2) as pool:
        pool.send([10], env_ids=[3])
        pool.send([20, 30], env_ids=[1, 0])
        assert pool.pending == 3
        got = rewards(pool.recv(min_envs=1, max_envs=1))
        assert len(got) == 1
        assert pool.pending == 2
        got |= rewards(pool.recv())
        assert got == {3: 10.0, 1: 20.0, 0: 30.0}
        assert pool.pending == 0
        pool.send([1, 2, 3, 4])
        assert pool.recv().env_ids.tolist() == [0, 1, 2, 3]

        pool.send_reset()
        assert len(pool.recv(min_envs=4, max_envs=3)) == 3
        assert len(pool.recv(min_envs=4)) == 1  # only one env is left in flight
        pool.send([1, 2, 3, 4])
        assert len(pool.recv(max_envs=0)) == 0
        assert len(pool.recv(min_envs=4, max_envs=1000)) == 4
        pool.send_reset()
        pool.recv(min_envs=0, timeout=-1)
        pool.discard()


def test_rows_by_arrival_or_by_slot() -> None:
    with begun(counting(4), backend="serial") as pool:
        for pending, env_id in enumerate((2, 0, 3), start=1):
            pool.send([env_id], [env_id])
            pool.recv(min_envs=pending, max_envs=0)  # waits until the result has arrived
        batch = pool.recv(min_envs=1)
        assert batch.env_ids.tolist() == batch.rewards.tolist() == [2, 0, 3]
        for pending, env_id in enumerate((2, 0, 3), start=1):
            pool.send([env_id], [env_id])
            pool.recv(min_envs=pending, max_envs=0)
        batch = pool.recv(max_envs=2, order="slot")
        assert batch.env_ids.tolist() == batch.rewards.tolist() == [0, 2]  # the first two to arrive
        assert pool.recv(order="slot").env_ids.tolist() == [3]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_results_are_received_in_turn(num_workers: int) -> None:
    """An env that is stepped again is received after all results that arrived earlier."""
    with Pool(counting(4), num_workers=num_workers) as pool:
        pool.send_reset()
        served = []
        for _ in range(20):
            batch = pool.recv(min_envs=4, max_envs=1)  # all four results have arrived
            served += batch.env_ids.tolist()
            pool.send([1], batch.env_ids)
        for turn in range(0, 20, 4):
            assert served[turn : turn + 4] == served[:4]
        assert sorted(served[:4]) == [0, 1, 2, 3]


def test_an_empty_batch_has_the_right_shape() -> None:
    for env in (NestedEnv, CountingEnv, TextEnv):
        with Pool([env] * 2, backend="serial", num_workers=1) as pool:
            full = pool.reset()
            pool.request_obs()
            batch = pool.recv(max_envs=0)
            assert (len(batch), batch.env_ids.shape, list(batch.infos), batch.infos.stack()) == (0, (0,), [], {})
            assert (batch.rewards.shape, batch.rewards.dtype.name) == ((0,), "float64")
            assert (batch.terminations.shape, batch.terminations.dtype.name) == ((0,), "bool")
            assert batch.final_obs is None
            if env is NestedEnv:
                assert batch.obs["image"].shape == (0, 3, 4)
                assert batch.obs["pose"][1].dtype == full.obs["pose"][1].dtype
            else:
                assert len(batch.obs) == 0
            pool.discard()


# -- timeouts and late results ---------------------------------------------------------------------------


def test_late_results_are_neither_lost_nor_mixed_up(tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 1)
    with begun(gated([gates[0], None, None])) as pool:
        pool.send([100, 1, 2])
        gates[0].await_arrival()
        pool.call("pid", env_ids=[1, 2])  # the workers step these envs before they answer this call
        assert rewards(pool.recv(timeout=0)) == {1: 1.0, 2: 2.0}
        assert len(pool.recv(timeout=0)) == 0
        assert len(pool.recv(timeout=0.01)) == 0
        for i in range(10):
            pool.send([10 + i, 20 + i], env_ids=[2, 1])
            assert rewards(pool.recv(min_envs=2)) == {2: 10 + i, 1: 20 + i}
            assert pool.pending == 1
        with pytest.raises(StateError, match="env 0 is in flight"):
            pool.send([1, 1], env_ids=[1, 0])
        gates[0].open()
        assert rewards(pool.recv(timeout=float("inf"))) == {0: 100.0}
        assert pool.get_attr("total_steps") == [1, 11, 11]


# -- discard and observe ---------------------------------------------------------------------------------


def test_discard_drops_results_and_waits_for_envs_in_flight(tmp_path: Path) -> None:
    with Pool(counting(3), backend="serial", num_workers=2) as pool:
        pool.discard()
        pool.reset()
        pool.send([1, 2, 3])
        pool.discard()
        assert pool.pending == 0
        pool.send([7], env_ids=[1])
        pool.send([8, 9], env_ids=[0, 2])
        pool.recv(min_envs=1, max_envs=1)
        pool.discard()
        batch = pool.step([4, 5, 6])
        assert batch.rewards.tolist() == [4, 5, 6]
        assert batch.obs[:, 2].tolist() == [3, 3, 3]
    (gate,) = make_gates(tmp_path, 1)
    with begun(gated([None, gate])) as pool:
        pool.send([1, 2])
        opener = threading.Thread(target=gate.let_pass)
        opener.start()
        pool.discard()
        opener.join()
        assert pool.get_attr("total_steps") == [1, 1]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_observe_takes_no_step(mode: Any) -> None:
    with begun(counting(3, length=2), backend="serial", num_workers=2, autoreset=mode) as pool:
        for i in range(4):
            batch = pool.step([i, i, i])
            for _ in range(2):
                pool.request_obs(env_ids=[2, 0])
                again = pool.recv()
                order = np.argsort(again.env_ids)
                assert again.obs[order].tolist() == batch.obs[[0, 2]].tolist()
                assert not again.rewards.any()
                assert not again.terminations.any()
                assert not again.truncations.any()
                assert list(again.infos) == [{}, {}]
        assert pool.get_attr("total_steps") == [4 if mode != "next_step" else 3] * 3


def test_without_autoreset_a_finished_env_can_be_stepped() -> None:
    with begun(counting(2, length=2), backend="serial", autoreset="disabled") as pool:
        batches = [pool.step([7, 8]) for _ in range(4)]
        assert [batch.obs[:, 1:].tolist() for batch in batches] == [[[1, n, 7], [1, n, 8]] for n in (1, 2, 3, 4)]
        assert [batch.terminations.tolist() for batch in batches] == [[False] * 2, *[[True] * 2] * 3]
        assert pool.reset(env_ids=[1]).obs.tolist() == [[1, 2, 0, -1]]
        assert pool.step([7, 8]).obs[:, 1:].tolist() == [[1, 5, 7], [2, 1, 8]]


# -- steps of some envs, and resets after an error -------------------------------------------------------


def reset_with_info(env: Any) -> Any:
    return env.observe(), {"tag": env.tag, "name": f"env {env.tag}"}


def step_with_info(env: Any, action: Any) -> Any:
    """A step with an info that has a number, which gets a column, and a text, which does not. Action 99 is the last."""
    return env.observe(), float(action), action == 99, False, {"tag": env.tag, "name": f"env {env.tag}"}


def test_a_reset_or_step_of_some_envs_returns_rows_in_the_order_of_env_ids() -> None:
    hooks: Any = {"reset": reset_with_info, "autoreset": reset_with_info, "step": step_with_info}
    options: Any = {"num_workers": 2, "backend": "serial", "autoreset": "same_step", "log_advice": False}
    with Pool(hooked(4, range(4), **hooks), **options) as pool:
        some: list[Any] = [[2, 0, 3], [1], [3, 2, 1, 0], [0, 1, 2, 3], np.array([1, 2])]
        for env_ids in some:
            batch = pool.reset(seed=1, env_ids=iter(env_ids))
            assert batch.env_ids.tolist() == batch.obs[:, 0].tolist() == list(env_ids)  # the tags of these envs
            assert list(batch.infos) == [{"tag": i, "name": f"env {i}"} for i in env_ids]
            assert batch.infos.stack()["tag"].tolist() == list(env_ids)
        for env_ids in some:
            batch = pool.step([10 + i for i in env_ids], env_ids)
            assert batch.env_ids.tolist() == list(env_ids)
            assert batch.rewards.tolist() == [10.0 + i for i in env_ids]
            assert batch.obs[:, 0].tolist() == list(env_ids)  # their tags
            assert list(batch.infos) == [{"tag": i, "name": f"env {i}"} for i in env_ids]
        assert pool.pending == 0
        assert pool.step([0] * 4).obs[:, 2].tolist() == [4, 5, 5, 4]
        batch = pool.step([99, 99, 99], [2, 0, 1])
        assert batch.terminations.tolist() == [True] * 3
        assert batch.final_obs[:, [0, 3]].tolist() == [[2, 99], [0, 99], [1, 99]]
        assert [info["final_info"]["name"] for info in batch.infos] == ["env 2", "env 0", "env 1"]


def test_a_step_of_some_envs_is_refused_while_another_env_is_in_flight() -> None:
    with begun(counting(3), backend="serial") as pool:
        for call in (pool.step, pool.send):
            with pytest.raises(InvalidActionError, match=r"of shape \(2,\).*got list of shape \(3,\): \[1, 2, 3\]"):
                call([1, 2, 3], [0, 1])
        assert pool.pending == 0
        pool.send([5], [2])
        with pytest.raises(StateError, match="expected no env in flight, got 1; call recv or discard first"):
            pool.step([1], [0])
        assert pool.recv().env_ids.tolist() == [2]
        assert pool.step([1], [0]).obs[:, 2].tolist() == [1]


def broken(env: Any, action: Any) -> None:
    if action == 13:
        raise ValueError("broken")


def test_a_reset_of_all_envs_discards_results_after_an_error() -> None:
    with Pool(hooked(3, step=broken), num_workers=3, backend="serial", log_advice=False) as pool:
        for _ in range(2):
            pool.reset()
            with pytest.raises(EnvError, match="broken"):
                pool.step([1, 13, 1])
        batch = pool.reset(seed=1)
        assert batch.env_ids.tolist() == [0, 1, 2]
        assert batch.obs[:, 2].tolist() == [0, 0, 0]
        assert pool.step([1, 1, 1]).obs[:, 2].tolist() == [1, 1, 1]


def test_results_without_a_preceding_error_are_not_discarded() -> None:
    with begun(hooked(3, step=broken), num_workers=3) as pool:
        with pytest.raises(EnvError):
            pool.step([1, 13, 1])
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.reset(env_ids=[1])  # other envs' results would be mixed with those of the reset
        assert pool.recv().env_ids.tolist() == [0, 2] or pool.pending == 0
        pool.reset(env_ids=[1])
        pool.send([1, 1, 1])
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.reset()
        assert len(pool.recv()) == 3
        with pytest.raises(EnvError):
            pool.step([1, 13, 1])
        pool.discard()
        pool.send([1], [0])  # this result does not remain from the failed step
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.reset()


# -- calls -----------------------------------------------------------------------------------------------


def test_a_call_waits_for_its_env_and_for_no_other(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
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


# -- concurrency -----------------------------------------------------------------------------------------


def gauged(n: int, gauge: Gauge, gates: Sequence[Gate] = ()) -> list[EnvFn]:
    def busy(env: Any, *action: Any) -> None:
        gauge.enter()
        if gates:
            gates[env.tag].wait()
        gauge.leave()

    return hooked(n, range(n), step=busy, reset=busy)


@each(backend=["process", "thread"], limit=[1, 2])
def test_no_more_workers_run_at_once_than_allowed(limit: int, backend: Any, tmp_path: Path) -> None:
    gauge = Gauge(tmp_path / "gauge")
    with begun(gauged(6, gauge), backend=backend, num_workers=4, max_concurrency=limit) as pool:
        for _ in range(20):
            pool.step([0] * 6)
        for _ in range(20):
            pool.send([1, 2, 3], env_ids=[0, 2, 4])
            pool.send([4, 5, 6], env_ids=[5, 3, 1])
            pool.recv(min_envs=1)
            if pool.pending:
                pool.recv()
    assert gauge.entries() == 6 * 41
    assert gauge.peak() <= limit


def test_as_many_workers_run_at_once_as_allowed(tmp_path: Path) -> None:
    gauge, gates = Gauge(tmp_path / "gauge"), make_gates(tmp_path, 4)
    with Pool(gauged(4, gauge, gates), max_concurrency=2, num_workers=None) as pool:
        pool.send_reset()
        for first in (0, 2):
            for gate in gates[first : first + 2]:
                gate.await_arrival()
            assert gauge.entries() == first + 2
            assert len(pool.recv(timeout=0)) == 0
            call = pool.call_async("get_wrapper_attr", "tag", env_ids=[first])
            for gate in gates[first : first + 2]:
                gate.open()
            assert len(pool.recv(min_envs=2, max_envs=2)) == 2
            assert call.result() == [first]
    assert gauge.peak() == 2


# -- numbers ---------------------------------------------------------------------------------------------


NUMBERS = [(n, workers) for n in (1, 2, 3, 7, 64, 65, 200) for workers in {1, 2, n // 2, n - 1, n} if 0 < workers <= n]


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "backend"), [*((*numbers, "serial") for numbers in NUMBERS), (65, 3, "process")]
)
def test_any_number_of_envs_and_workers(num_envs: int, num_workers: int, backend: Any) -> None:
    with Pool(counting(num_envs), num_workers=num_workers, backend=backend) as pool:
        assert [i for worker in pool.workers for i in worker.env_ids] == list(range(num_envs))
        shares = [len(worker.env_ids) for worker in pool.workers]
        assert max(shares) - min(shares) <= 1
        assert pool.reset().obs[:, 0].tolist() == list(range(num_envs))
        for i in range(3):
            assert pool.step(np.arange(num_envs) + i).rewards.tolist() == [k + i for k in range(num_envs)]
        every_other = list(range(0, num_envs, 2))[::-1]
        pool.send(every_other, env_ids=every_other)
        assert rewards(pool.recv()) == {i: float(i) for i in every_other}
