"""Sends and receives in any order: each action has exactly one result, from the right env, however late."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_envs import (
    CountingEnv,
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
        assert rewards(pool.recv(min_envs=2)) == {1: 1.0, 2: 2.0}
        assert len(pool.recv(timeout=0)) == 0
        assert len(pool.recv(timeout=0.01)) == 0
        for i in range(10):
            pool.send([10 + i, 20 + i], env_ids=[2, 1])
            assert rewards(pool.recv(min_envs=2)) == {2: 10 + i, 1: 20 + i}
            assert pool.pending == 1
        with pytest.raises(StateError, match="env 0 is in flight"):
            pool.send([1], env_ids=[0])
        gates[0].open()
        assert rewards(pool.recv()) == {0: 100.0}
        assert pool.get_attr("total_steps") == [1, 11, 11]


def test_results_are_received_in_the_order_of_arrival(tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 4)
    order = [2, 0, 3, 1]
    with begun(gated(gates)) as pool:
        pool.send([0, 1, 2, 3])
        arrived = []
        for env_id in order:
            gates[env_id].let_pass()
            arrived += pool.recv(min_envs=1).env_ids.tolist()
        assert arrived == order


def test_recv_with_a_timeout_returns_the_results_that_have_arrived(tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 2)
    with begun(gated([gates[0], None, gates[1]]), backend="thread") as pool:
        pool.send([0, 1, 2])
        for gate in gates:
            gate.await_arrival()
        pool.call("pid", env_ids=[1])  # the worker steps env 1 before it answers this call
        assert rewards(pool.recv(timeout=0)) == {1: 1.0}
        gates[1].open()
        assert rewards(pool.recv(min_envs=1)) == {2: 2.0}
        gates[0].open()
        assert rewards(pool.recv(timeout=float("inf"))) == {0: 0.0}


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


# -- threads and statistics ------------------------------------------------------------------------------


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
    """A step with an info that has a number, which gets a column, and a text, which does not."""
    over = env.steps >= env.length
    return env.observe(), float(action), over, False, {"tag": env.tag, "name": f"env {env.tag}"}


def test_a_reset_or_step_of_some_envs_returns_rows_in_the_order_of_env_ids() -> None:
    hooks: Any = {"reset": reset_with_info, "autoreset": reset_with_info, "step": step_with_info}
    with Pool(hooked(4, range(4), **hooks), num_workers=2, backend="serial", log_advice=False) as pool:
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


def test_terminal_observations_and_irregular_infos_follow_the_order() -> None:
    env_fns = hooked(3, range(3), length=1, step=step_with_info)
    with begun(env_fns, num_workers=1, autoreset="same_step", backend="serial") as pool:
        batch = pool.step([7, 8, 9], [2, 0, 1])
    assert batch.terminations.tolist() == [True] * 3
    assert batch.final_obs[:, 0].tolist() == [2, 0, 1]
    assert batch.final_obs[:, 3].tolist() == [7, 8, 9]
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


def test_parts_step_some_of_their_envs() -> None:
    with begun(counting(4), num_workers=2) as pool:
        one, other = pool.split(2)
        env_ids = other.env_ids.tolist()[::-1]
        one.send([1, 1])
        assert other.step([3, 4], env_ids).env_ids.tolist() == env_ids
        assert one.recv().env_ids.tolist() == one.env_ids.tolist()


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
