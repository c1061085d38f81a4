"""Sending and receiving in any order: every action is answered exactly once, by the right env, however late."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pool_envs import CountingEnv, EnvFn, Gate, Gauge, HookedEnv, NestedEnv, TextEnv, counting, gated, hooked

from remuda import Batch, EnvError, Pool, StateError

BACKENDS = ("process", "thread", "serial")
CONCURRENT = ("process", "thread")


def rewards(batch: Batch) -> dict[int, float]:
    assert len(set(batch.env_ids.tolist())) == len(batch)
    return dict(zip(batch.env_ids.tolist(), batch.reward.tolist(), strict=True))


def make_gates(directory: Path, n: int) -> list[Gate]:
    return [Gate(directory, f"gate{i}") for i in range(n)]


# -- partial sends and receives --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_sends_and_receives_in_parts(num_workers: int, backend: Any) -> None:
    with Pool(counting(4), backend=backend, num_workers=num_workers) as pool:
        pool.reset()
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_a_full_send(backend: Any) -> None:
    with Pool(counting(5), backend=backend, num_workers=2) as pool:
        pool.reset()
        for i in range(20):
            pool.send([10 * i + k for k in range(5)])
            got: dict[int, float] = {}
            while pool.pending:
                got |= rewards(pool.recv(min_envs=1, max_envs=2))
            assert got == {k: 10 * i + k for k in range(5)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_limits_of_recv(backend: Any) -> None:
    with Pool(counting(4), backend=backend) as pool:
        pool.send_reset()
        assert len(pool.recv(min_envs=4, max_envs=3)) == 3
        assert len(pool.recv(min_envs=1000)) == 1  # all that there are
        pool.send([1, 2, 3, 4])
        assert len(pool.recv(max_envs=0)) == 0
        assert len(pool.recv(min_envs=4, max_envs=1000)) == 4
        pool.send_reset()
        pool.recv(min_envs=0, timeout=-1)
        pool.discard()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_by_arrival_or_by_slot(backend: Any) -> None:
    with Pool(counting(4), backend=backend) as pool:
        pool.reset()
        for pending, env_id in enumerate((2, 0, 3), start=1):
            pool.send([env_id], [env_id])
            pool.recv(min_envs=pending, max_envs=0)  # it has arrived
        batch = pool.recv(min_envs=1)
        assert batch.env_ids.tolist() == batch.reward.tolist() == [2, 0, 3]
        for pending, env_id in enumerate((2, 0, 3), start=1):
            pool.send([env_id], [env_id])
            pool.recv(min_envs=pending, max_envs=0)
        batch = pool.recv(max_envs=2, order="slot")
        assert batch.env_ids.tolist() == batch.reward.tolist() == [0, 2]  # the first two to arrive
        assert pool.recv(order="slot").env_ids.tolist() == [3]
        pool.send_observe()
        with pytest.raises(ValueError, match="order to be 'arrival' or 'slot', got 'random'"):
            pool.recv(order="random")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_ids_may_be_any_array_of_ints(backend: Any) -> None:
    with Pool(counting(4), backend=backend) as pool:
        pool.reset()
        for ids in (
            np.array([2, 0]),
            np.array([2, 0], np.int32),
            np.array([2, 0], np.uint64),
            np.array([2, 0], ">i8"),
            np.array([2, 9, 0])[::2],
            np.array([[2, 0]])[0],
        ):
            pool.send(np.array([7, 8]), ids)
            assert rewards(pool.recv()) == {2: 7.0, 0: 8.0}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("ids", "error"),
    [
        (np.array([1, 1]), ValueError),
        (np.array([1, 4]), ValueError),
        (np.array([-1, 1]), ValueError),
        (np.array([2**63, 1], np.uint64), ValueError),
        (np.array([1.0, 2.0]), TypeError),
        (np.array([True, False]), TypeError),
        (np.array([[0], [1]]), TypeError),
        (np.array([0, 3]), StateError),
    ],
)
def test_arrays_that_are_no_ids(ids: Any, error: type[Exception], backend: Any) -> None:
    with Pool(counting(4), backend=backend) as pool:
        pool.reset()
        pool.send([5], [3])
        with pytest.raises(error, match="expected"):
            pool.send(np.array([1, 2]), ids)
        assert pool.pending == 1
        assert rewards(pool.recv()) == {3: 5.0}


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_nobody_starves(num_workers: int, backend: Any) -> None:
    """Whoever is served and is done again at once comes after all that were done before."""
    with Pool(counting(4), backend=backend, num_workers=num_workers) as pool:
        pool.send_reset()
        served = []
        for _ in range(20):
            batch = pool.recv(min_envs=4, max_envs=1)  # all four are done
            served += batch.env_ids.tolist()
            pool.send([1], batch.env_ids)
        for turn in range(0, 20, 4):
            assert served[turn : turn + 4] == served[:4]
        assert sorted(served[:4]) == [0, 1, 2, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_batch_has_the_right_shape(backend: Any) -> None:
    for env, action in ((NestedEnv, None), (CountingEnv, 0), (TextEnv, None)):
        with Pool([env] * 2, backend=backend, num_workers=1) as pool:
            full = pool.reset()
            pool.send_observe()
            batch = pool.recv(max_envs=0)
            assert len(batch) == 0
            assert batch.env_ids.shape == (0,)
            assert (batch.reward.shape, batch.reward.dtype.name) == ((0,), "float64")
            assert (batch.terminated.shape, batch.terminated.dtype.name) == ((0,), "bool")
            assert list(batch.infos) == []
            assert batch.infos.stack() == {}
            assert batch.final_obs is None
            if env is NestedEnv:
                assert batch.obs["image"].shape == (0, 3, 4)
                assert batch.obs["pose"][1].dtype == full.obs["pose"][1].dtype
            else:
                assert len(batch.obs) == 0
            assert action is None or batch.obs.shape == (0, 4)
            pool.discard()


# -- timeouts and late results ---------------------------------------------------------------------------


@pytest.mark.parametrize("backend", CONCURRENT)
def test_late_results_are_neither_lost_nor_mixed_up(backend: Any, tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 1)
    with Pool(gated([gates[0], None, None]), backend=backend) as pool:
        pool.reset()
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


@pytest.mark.parametrize("backend", CONCURRENT)
def test_the_first_to_finish_come_first(backend: Any, tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 4)
    order = [2, 0, 3, 1]
    with Pool(gated(gates), backend=backend) as pool:
        pool.reset()
        pool.send([0, 1, 2, 3])
        arrived = []
        for env_id in order:
            gates[env_id].let_pass()
            arrived += pool.recv(min_envs=1).env_ids.tolist()
        assert arrived == order


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_late_env_does_not_hold_up_the_others_in_other_workers(backend: Any, tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with Pool(gated([None, None, gate, None]), backend=backend, num_workers=2) as pool:
        pool.reset()
        pool.send([0, 1, 2, 3])
        gate.await_arrival()
        assert sorted(pool.recv(min_envs=2).env_ids.tolist()) == [0, 1]
        pool.send([7, 8], env_ids=[0, 1])
        assert rewards(pool.recv(min_envs=2)) == {0: 7.0, 1: 8.0}
        gate.open()
        assert rewards(pool.recv()) == {2: 2.0, 3: 3.0}


def test_a_timeout_takes_what_is_there(tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 2)
    with Pool(gated([gates[0], None, gates[1]]), backend="thread") as pool:
        pool.reset()
        pool.send([0, 1, 2])
        for gate in gates:
            gate.await_arrival()
        pool.call("pid", env_ids=[1])  # it has stepped when it answers
        assert rewards(pool.recv(timeout=0)) == {1: 1.0}
        gates[1].open()
        assert rewards(pool.recv(min_envs=1)) == {2: 2.0}
        gates[0].open()
        assert rewards(pool.recv(timeout=float("inf"))) == {0: 0.0}


# -- discard and observe ---------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_discard(backend: Any) -> None:
    with Pool(counting(3), backend=backend, num_workers=2) as pool:
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
        assert batch.reward.tolist() == [4, 5, 6]
        assert batch.obs[:, 2].tolist() == [3, 3, 3]


@pytest.mark.parametrize("backend", CONCURRENT)
def test_discard_waits_for_what_is_in_flight(backend: Any, tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with Pool(gated([None, gate]), backend=backend) as pool:
        pool.reset()
        pool.send([1, 2])
        opener = threading.Thread(target=gate.let_pass)
        opener.start()
        pool.discard()
        opener.join()
        assert pool.get_attr("total_steps") == [1, 1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_observe_takes_no_step(mode: Any, backend: Any) -> None:
    with Pool(counting(3, length=2), backend=backend, num_workers=2, autoreset=mode) as pool:
        pool.reset()
        for i in range(4):
            batch = pool.step([i, i, i])
            for _ in range(2):
                pool.send_observe(env_ids=[2, 0])
                again = pool.recv()
                order = np.argsort(again.env_ids)
                assert again.obs[order].tolist() == batch.obs[[0, 2]].tolist()
                assert not again.reward.any()
                assert not again.terminated.any()
                assert not again.truncated.any()
                assert list(again.infos) == [{}, {}]
        assert pool.get_attr("total_steps") == [4 if mode != "next_step" else 3] * 3


def test_observe_with_objects() -> None:
    with Pool([TextEnv] * 2, backend="serial") as pool:
        pool.reset()
        pool.step(("one", "two"))
        pool.send_observe()
        assert pool.recv().obs == ("one", "two")


# -- a model ---------------------------------------------------------------------------------------------


class Model(RuleBasedStateMachine):
    """A pool of counting envs beside their obvious description.

    What rules draw must not depend on which results have come: that is chance where workers are threads.
    """

    backend: Any = "serial"
    num_envs = 4
    length = 3

    @initialize(
        num_workers=st.integers(1, 4),
        frames=st.integers(1, 4),
        mode=st.sampled_from(["next_step", "disabled", "background"]),
    )
    def start(self, num_workers: int, frames: int, mode: Any) -> None:
        self.mode = mode
        self.pool = Pool(
            counting(self.num_envs, self.length),
            backend=self.backend,
            num_workers=num_workers,
            frames=frames,
            autoreset=mode,
        )
        self.envs = [CountingEnv(tag, self.length) for tag in range(self.num_envs)]
        self.done = [False] * self.num_envs
        self.expected: dict[int, tuple[list[int], float, bool]] = {}  # of what is in flight
        self.reset = [False] * self.num_envs
        self.next_action = 0
        self.calls: list[tuple[Any, list[int]]] = []
        self.held: list[tuple[Batch, list[float]]] = []

    def _idle(self, env_ids: Sequence[int], must_be_reset: bool = True) -> list[int]:
        return [i for i in env_ids if i not in self.expected and (self.reset[i] or not must_be_reset)]

    def _note(self, i: int, reward: float = 0.0, done: bool = False) -> None:
        self.expected[i] = (self.envs[i].observe().tolist(), reward, done)

    def _begin_episode(self, i: int) -> None:
        self.envs[i].reset()
        self.reset[i], self.done[i] = True, False

    @rule(ids=st.permutations(range(4)), count=st.integers(0, 4))
    def send_reset(self, ids: list[int], count: int) -> None:
        ids = self._idle(ids[:count], must_be_reset=False)
        self.pool.send_reset(env_ids=ids)
        for i in ids:
            self._begin_episode(i)
            self._note(i)

    @rule(ids=st.permutations(range(4)), count=st.integers(1, 4), as_arrays=st.booleans())
    def send(self, ids: list[int], count: int, as_arrays: bool) -> None:
        ids = self._idle(ids[:count])
        actions = [self.next_action + k for k in range(len(ids))]
        self.next_action = (self.next_action + len(ids)) % 900
        if as_arrays:
            self.pool.send(np.array(actions, np.int64), env_ids=np.array(ids, np.int64))
        else:
            self.pool.send(actions, env_ids=ids)
        for i, action in zip(ids, actions, strict=True):
            if self.done[i] and self.mode == "next_step":
                self._begin_episode(i)
                self._note(i)
            else:
                _, reward, self.done[i], _, _ = self.envs[i].step(action)
                self._note(i, reward, self.done[i])

    @rule(ids=st.permutations(range(4)), count=st.integers(1, 4))
    def observe(self, ids: list[int], count: int) -> None:
        ids = self._idle(ids[:count])
        self.pool.send_observe(env_ids=ids)
        for i in ids:
            self._note(i)

    @rule(
        min_envs=st.one_of(st.none(), st.integers(0, 5)),
        max_envs=st.one_of(st.none(), st.integers(0, 5)),
        timeout=st.sampled_from([None, 0, 0.001]),
        order=st.sampled_from(["arrival", "slot"]),
        hold=st.booleans(),
    )
    def recv(self, min_envs: int | None, max_envs: int | None, timeout: float | None, order: Any, hold: bool) -> None:
        pending = len(self.expected)
        if not pending:
            with pytest.raises(StateError, match="got none"):
                self.pool.recv(min_envs, timeout, max_envs)
            return
        batch = self.pool.recv(min_envs, timeout, max_envs, order)
        limit = pending if max_envs is None else max_envs
        least = pending if min_envs is None else min_envs
        assert len(batch) <= limit
        if timeout is None:
            assert len(batch) >= min(least, limit, pending)
        for row, i in enumerate(batch.env_ids.tolist()):
            obs, reward, done = self.expected.pop(i)  # exactly once: a second time is a KeyError
            assert batch.obs[row].tolist() == obs
            assert (batch.reward[row], batch.terminated[row], batch.truncated[row]) == (reward, done, False)
            if done and self.mode == "background":
                self._begin_episode(i)
                self._note(i)
        if order == "slot":
            assert batch.env_ids.tolist() == sorted(batch.env_ids.tolist())
        if hold:
            self.held.append((batch, batch.reward.tolist()))

    @rule(which=st.integers(0, 3))
    def send_to_one_in_flight(self, which: int) -> None:
        if self.expected:
            others = self._idle(range(4))
            busy = sorted(self.expected)[which % len(self.expected)]
            with pytest.raises(StateError):
                self.pool.send([1] * (len(others) + 1), env_ids=[*others, busy])

    @rule()
    def discard(self) -> None:
        self.pool.discard()
        for i, (_, _, done) in self.expected.items():
            if done and self.mode == "background":
                self._begin_episode(i)
        self.expected.clear()

    @rule(ids=st.permutations(range(4)), count=st.integers(0, 4))
    def call(self, ids: list[int], count: int) -> None:
        """A call comes after all that was sent to its env before."""
        self.calls.append((self.pool.call_async("get_wrapper_attr", "total_steps", env_ids=ids[:count]), [
            self.envs[i].total_steps for i in ids[:count]
        ]))  # fmt: skip

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 100))
    def answer(self, which: int) -> None:
        call, expected = self.calls.pop(which % len(self.calls))
        assert call.result() == expected
        assert call.done
        assert call.result() == expected

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 100))
    def drop(self, which: int) -> None:
        self.held.pop(which % len(self.held))

    @invariant()
    def nothing_is_overwritten(self) -> None:
        for batch, reward in getattr(self, "held", []):
            assert batch.reward.tolist() == reward

    @invariant()
    def as_many_are_pending(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.pending == len(self.expected)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()


class ThreadModel(Model):
    backend = "thread"


TestModelOnSerial = Model.TestCase
TestModelOnSerial.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestModelOnThreads = ThreadModel.TestCase
TestModelOnThreads.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def dawdle(env: HookedEnv, action: int) -> None:
    time.sleep((17 * env.tag + 31 * int(action)) % 7 * 1e-4)  # so that they arrive in any order


@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_on_processes(seed: int) -> None:
    """As the model, but one long walk: starting processes for each of hundreds would take too long."""
    rng = np.random.default_rng(seed)
    n = 5
    envs = hooked(n, range(n), step=dawdle) if seed % 2 else counting(n)
    with Pool(envs, num_workers=int(rng.integers(1, n + 1))) as pool:
        pool.reset()
        steps, expected = [0] * n, {}
        for _ in range(600):
            idle = [i for i in range(n) if i not in expected]
            ids = rng.permutation(idle)[: rng.integers(0, len(idle) + 1)].tolist()
            actions = rng.integers(0, 1000, len(ids))
            pool.send(actions, env_ids=np.array(ids, np.int64) if rng.integers(2) else ids)
            for i, action in zip(ids, actions.tolist(), strict=True):
                steps[i] += 1
                expected[i] = (steps[i], action)
            if expected:
                timeout, order = [None, 0, 1e-4][rng.integers(3)], ["arrival", "slot"][rng.integers(2)]
                batch = pool.recv(int(rng.integers(0, 3)), timeout, int(rng.integers(1, n + 1)), order)  # type: ignore[arg-type]
                for row, i in enumerate(batch.env_ids.tolist()):
                    assert tuple(batch.obs[row, 2:].tolist()) == expected.pop(i)
            assert pool.pending == len(expected)


# -- calls between ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_call_waits_for_its_env_and_for_no_other(backend: Any, tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with Pool(gated([gate, None]), backend=backend) as pool:
        pool.reset()
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_calls_in_flight_than_the_ring_has_room_for(backend: Any) -> None:
    with Pool(counting(3), backend=backend, num_workers=2) as pool:
        pool.reset()
        pool.send([1, 2, 3])
        calls = [pool.call_async("echo", i) for i in range(500)]
        for i, call in reversed(list(enumerate(calls))):
            assert call.result() == [((i,), {})] * 3
        assert rewards(pool.recv()) == {0: 1.0, 1: 2.0, 2: 3.0}


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_to_many_envs_of_a_worker(backend: Any) -> None:
    with Pool(counting(200), backend=backend, num_workers=1) as pool:
        pool.reset()
        calls = [pool.call_async("echo", i) for i in range(10)]
        for i, call in enumerate(calls):
            assert call.result() == [((i,), {})] * 200


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_and_attributes(backend: Any) -> None:
    with Pool(counting(3), backend=backend, num_workers=2) as pool:
        assert pool.call("echo", 1, x=2) == [((1,), {"x": 2})] * 3
        assert pool.call("tag", env_ids=[2, 0]) == [2, 0]
        assert pool.apply(lambda env, a, b=0: env.tag + a + b, 10, b=5, env_ids=[1]) == [16]
        assert pool.apply_async(lambda env, a: a, env_ids=[2, 1], per_env_args=[("x",), ("y",)]).result() == ["x", "y"]
        pool.set_attr("tag", 7)
        pool.set_attrs("tag", [8, 9], env_ids=[2, 0])
        assert pool.get_attr("tag") == [9, 7, 8]
        assert [frame.shape for frame in pool.render()] == [(2, 2, 3)] * 3
        array = pool.apply(lambda env: np.arange(3))[0]
        array[:] = 5  # it is ours
        call = pool.call_async("echo")
        first = call.result()
        first.clear()
        assert len(call.result()) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_that_cannot_be_unpickled_is_an_error_of_that_call_alone(backend: Any) -> None:
    class Poison:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    with Pool(counting(2), backend=backend, num_workers=1) as pool:
        pool.reset()
        before, bad, after = pool.call_async("pid"), pool.apply_async(lambda env: Poison()), pool.call_async("pid")
        assert pool.step([1, 2]).reward.tolist() == [1, 2]
        with pytest.raises(EnvError, match="envs 0, 1 .* in call: .*not a number") as raised:
            bad.result()
        assert isinstance(raised.value.__cause__, ValueError)
        assert len(before.result()) == len(after.result()) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_info_that_cannot_be_unpickled_is_an_error_of_its_reader_alone(backend: Any) -> None:
    class Poison:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    def step(env: Any, action: Any) -> Any:
        return env.observe(), 3.0, False, False, {"new": 1, "poison": Poison()}

    with Pool([CountingEnv, lambda: HookedEnv(step=step)], backend=backend, num_workers=1) as pool:
        pool.reset()
        for _ in range(3):
            batch = pool.step([1, 2])
            assert batch.reward.tolist() == [1, 3]
            assert batch.infos[0] == {}
            with pytest.raises(EnvError, match=r"env 1 \(worker 0\) raised ValueError in step: .*not a number"):
                batch.infos[1]


# -- big blobs -------------------------------------------------------------------------------------------

# The room for pickled matter is 64 KiB in each direction; what does not fit goes over the socket.
SIZES = [0, 1, 1000, 60_000, 65_000, 65_400, 65_450, 65_480, 65_500, 65_528, 65_536, 70_000, 200_000, 5_000_000]


@pytest.mark.parametrize("backend", BACKENDS)
def test_texts_of_any_size(backend: Any) -> None:
    with Pool([TextEnv] * 2, backend=backend, num_workers=1) as pool:
        pool.reset(options={"text": "x" * 100_000})
        for size in SIZES:
            texts = ("a" * size, "b" * size)
            assert pool.step(texts).obs == texts


@pytest.mark.parametrize("backend", BACKENDS)
def test_big_and_small_blobs_in_any_order(backend: Any) -> None:
    rng = np.random.default_rng(1)
    sizes = rng.choice([10, 500, 20_000, 64_000, 90_000, 300_000], 120)
    data = [rng.bytes(int(size)) for size in sizes]
    with Pool([TextEnv] * 2, backend=backend, num_workers=1) as pool:
        pool.reset()
        calls = [pool.call_async("repeat", blob) for blob in data]
        for call, blob in zip(calls, data, strict=True):
            assert call.result() == [blob, blob]


@pytest.mark.parametrize("room", [4096, 5000, 1 << 20])
def test_another_room_for_blobs(room: int) -> None:
    rng = np.random.default_rng(2)
    with Pool([TextEnv] * 2, num_workers=2, object_bytes=room) as pool:
        pool.reset()
        for size in (0, 4000, room - 100, room - 40, room, room + 1, 2 * room):
            text = "a" * size
            assert pool.step((text, text)).obs == (text, text)
            blob = rng.bytes(size)
            assert pool.call("repeat", blob) == [blob, blob]


def test_the_room_for_blobs_is_that_of_each_worker_and_direction() -> None:
    sizes = []
    for room in (1 << 16, 1 << 20):
        with Pool([TextEnv] * 2, num_workers=2, object_bytes=room):
            sizes.append(shared_bytes())
    assert sizes[1] - sizes[0] == 2 * 2 * ((1 << 20) - (1 << 16))


def shared_bytes() -> int:
    """Of the one pool that there is."""
    maps = Path("/proc/self/maps").read_text()
    (line,) = (line for line in maps.splitlines() if "/memfd:remuda" in line)
    begin, end = line.split()[0].split("-")
    return int(end, 16) - int(begin, 16)


def test_both_ends_write_a_lot_at_the_same_time() -> None:
    """Neither may wait for the other to read first."""
    with Pool([lambda: TextEnv(times=2)] * 4, num_workers=1) as pool:
        pool.reset()
        for _ in range(3):
            texts = tuple(chr(97 + i) * 3_000_000 for i in range(4))
            for i in range(4):
                pool.send((texts[i],), env_ids=[i])
            calls = [pool.call_async("repeat", b"z" * 1_000_000) for _ in range(4)]
            got: dict[int, str] = {}
            while pool.pending:
                batch = pool.recv(min_envs=1)
                got |= dict(zip(batch.env_ids.tolist(), batch.obs, strict=True))
            assert got == {i: texts[i] * 2 for i in range(4)}
            assert all(call.result() == [b"z" * 1_000_000] * 4 for call in calls)


def test_big_arrays_in_calls() -> None:
    with Pool([TextEnv] * 2, num_workers=2) as pool:
        array = np.arange(2_000_000)
        for got in pool.call("repeat", array):
            assert (got == array).all()
            got[0] = 1  # it is ours
        fortran = np.asfortranarray(np.arange(600_000).reshape(600, 1000))
        assert all((got == fortran).all() for got in pool.call("repeat", fortran))
        assert all((got == array[::-7]).all() for got in pool.call("repeat", array[::-7]))
        assert pool.call("repeat", [np.zeros(0), np.zeros((0, 5)), b""])[1][1].shape == (0, 5)


def test_big_infos_and_terminal_observations() -> None:
    def step(env: Any, action: Any) -> Any:
        return env.observe(), 0.0, True, False, {"log": "x" * 100_000, "map": np.full((300, 300), int(action))}

    fns = [lambda: HookedEnv(step=step)] * 3
    with Pool(fns, num_workers=1, autoreset="same_step") as pool:
        pool.reset()
        for i in range(5):
            batch = pool.step([i, i + 1, i + 2])
            assert [info["final_info"]["map"][5, 5] for info in batch.infos] == [i, i + 1, i + 2]
            assert [len(info["final_info"]["log"]) for info in batch.infos] == [100_000] * 3


# -- concurrency -----------------------------------------------------------------------------------------


def gauged(n: int, gauge: Gauge, gates: Sequence[Gate | None] | None = None) -> list[EnvFn]:
    def one(i: int) -> EnvFn:
        gate = gates[i] if gates else None

        def busy(env: Any, *action: Any) -> None:
            gauge.enter()
            if gate is not None:
                gate.wait()
            gauge.leave()

        return lambda: HookedEnv(i, step=busy, reset=busy)

    return [one(i) for i in range(n)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_workers_run_at_once_than_allowed(limit: int, backend: Any, tmp_path: Path) -> None:
    gauge = Gauge(tmp_path / "gauge")
    with Pool(gauged(6, gauge), backend=backend, num_workers=4, max_concurrency=limit) as pool:
        pool.reset()
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


@pytest.mark.parametrize("backend", CONCURRENT)
def test_as_many_workers_run_at_once_as_allowed(backend: Any, tmp_path: Path) -> None:
    gauge, gates = Gauge(tmp_path / "gauge"), make_gates(tmp_path, 4)
    with Pool(gauged(4, gauge, gates), backend=backend, max_concurrency=2) as pool:
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


@pytest.mark.parametrize("backend", ["thread", "serial"])
@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 64, 65, 200])
def test_any_number_of_envs_and_workers(num_envs: int, backend: Any) -> None:
    for num_workers in {1, 2, num_envs // 2, num_envs - 1, num_envs} - {0}:
        if num_workers <= num_envs:
            _check_numbers(num_envs, num_workers, backend)


@pytest.mark.parametrize(("num_envs", "num_workers"), [(1, 1), (200, 1), (65, 3), (40, 40)])
def test_any_number_of_envs_and_processes(num_envs: int, num_workers: int) -> None:
    _check_numbers(num_envs, num_workers, "process")


def _check_numbers(num_envs: int, num_workers: int, backend: Any) -> None:
    with Pool(counting(num_envs), num_workers=num_workers, backend=backend) as pool:
        assert [i for worker in pool.workers for i in worker.env_ids] == list(range(num_envs))
        assert {len(worker.env_ids) for worker in pool.workers} <= {
            num_envs // num_workers,
            -(-num_envs // num_workers),
        }
        assert pool.reset().obs[:, 0].tolist() == list(range(num_envs))
        for i in range(3):
            assert pool.step(np.arange(num_envs) + i).reward.tolist() == [k + i for k in range(num_envs)]
        every_other = list(range(0, num_envs, 2))[::-1]
        pool.send(every_other, env_ids=every_other)
        assert rewards(pool.recv()) == {i: float(i) for i in every_other}


def test_large_observations() -> None:
    class Large(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (3, 1080, 1920), np.uint8)

        def observe(self) -> Any:
            return np.full((3, 1080, 1920), 10 * self.episodes + self.steps, np.uint8)

    with Pool([Large] * 2, frames=2) as pool:
        assert (pool.reset().obs == 10).all()
        assert (pool.step([0, 0]).obs == 11).all()
        pool.send([0], env_ids=[1])
        assert (pool.recv().obs == 12).all()


# -- threads and numbers about it ------------------------------------------------------------------------


def test_another_thread_may_use_the_pool_later() -> None:
    with Pool(counting(2), num_workers=1) as pool:
        results: list[Batch] = []
        for _ in range(3):
            thread = threading.Thread(target=lambda: results.append(pool.reset()))
            thread.start()
            thread.join()
        assert [batch.obs[:, 1].tolist() for batch in results] == [[1, 1], [2, 2], [3, 3]]
        assert pool.step([1, 2]).reward.tolist() == [1, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_stats_count(backend: Any) -> None:
    with Pool(counting(4), num_workers=2, backend=backend) as pool:
        pool.reset()
        for _ in range(5):
            pool.step([0] * 4)
        pool.send([1], env_ids=[3])
        pool.recv()
        pool.call("pid")
        stats = pool.stats()
        assert stats.steps == 25
        assert stats.steps_by_worker == (12, 13)
        assert stats.batches == 7
        assert stats.env_seconds > 0
        assert stats.waited_seconds >= 0
