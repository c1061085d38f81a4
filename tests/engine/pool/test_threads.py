"""Pools and batches in several threads, with and without the GIL."""

from __future__ import annotations

import gc
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import kill_myself
from pairs import each
from pool_envs import CountingEnv, EnvFn, Gate, HookedEnv, LevelEnv, counting, gated, levelled, with_infos

from remuda import Batch, ClosedError, EnvError, FaultPolicy, Pool, StateError
from remuda._engine.pool.part import Part

CONCURRENT = ("process", "thread")
BACKENDS = (*CONCURRENT, "serial")


class Task:
    """Runs a function in a thread of its own. `result` waits for its result, and returns it or raises its error."""

    def __init__(self, run: Callable[..., Any], *args: Any) -> None:
        self._outcome: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(run, args))
        self._thread.start()

    def _run(self, run: Callable[..., Any], args: Sequence[Any]) -> None:
        try:
            self._outcome.put((run(*args), None))
        except BaseException as error:
            self._outcome.put((None, error))

    def result(self) -> Any:
        result, error = self._outcome.get()
        self._thread.join()
        if error is not None:
            raise error
        return result


def at_once(run: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    """Calls `run` for each argument in a thread of its own. Returns the results."""
    return [task.result() for task in [Task(run, one) for one in arguments]]


def checked_steps(part: Part, steps: int) -> None:
    """Resets and steps a part of counting envs, checks each row, and holds the latest batches."""
    held: list[tuple[Any, Any]] = []
    part.reset()
    for n in range(1, steps + 1):
        actions = (part.env_ids + n) % 1000
        batch = part.step(actions)
        expected = np.stack([part.env_ids, np.ones_like(actions), np.full_like(actions, n), actions], axis=1)
        held = [*held[-3:], (batch.obs, expected)]
        for obs, rows in held:
            np.testing.assert_array_equal(obs, rows)
        np.testing.assert_array_equal(batch.rewards, actions)


@contextmanager
def waiting_part(backend: Any, directory: Path) -> Iterator[tuple[Pool, Part, Part]]:
    """Yields a pool and its two parts. A thread steps the first one, whose env waits until the block ends."""
    gate = Gate(directory)
    with Pool(gated([gate, None]), backend=backend, num_workers=2) as pool:
        pool.reset()
        slow, fast = pool.split(2)
        task = Task(slow.step, [7])
        gate.await_arrival()
        yield pool, slow, fast
        gate.open()
        assert task.result().rewards.tolist() == [7]
        assert pool.split(1) == (pool,)


# -- parts ---------------------------------------------------------------------------------------------------


@each(backend=BACKENDS, parts=[2, 4])
def test_each_part_is_stepped_by_a_thread_of_its_own(backend: Any, parts: int) -> None:
    with Pool(counting(8), backend=backend, num_workers=4) as pool:
        at_once(lambda part: checked_steps(part, 200), pool.split(parts))
        pool.split(1)
        assert pool.step([1] * 8).rewards.tolist() == [1] * 8


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_part_is_stepped_while_another_one_waits(backend: Any, tmp_path: Path) -> None:
    with waiting_part(backend, tmp_path) as (_, _, fast):
        for action in range(20):
            assert fast.step([action]).rewards.tolist() == [action]


def test_several_parts_wait_at_once_and_each_gets_its_own_rows(tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(3)]
    with Pool(gated(gates), num_workers=3) as pool:
        pool.reset()
        parts = pool.split(3)
        for order in itertools.permutations(range(3)):
            tasks = [Task(part.step, [10 + i]) for i, part in enumerate(parts)]
            for gate in gates:
                gate.await_arrival()
            for i in order:
                gates[i].open()
                assert tasks[i].result().obs[0, [0, 3]].tolist() == [i, 10 + i]


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_second_thread_in_the_same_part_is_refused(backend: Any, tmp_path: Path) -> None:
    with waiting_part(backend, tmp_path) as (_, slow, fast):
        for call in (lambda: slow.step([1]), slow.recv, slow.reset, slow.discard, lambda: slow.send([1])):
            with pytest.raises(StateError, match="one thread at a time"):
                call()
        assert fast.step([3]).rewards.tolist() == [3]


@pytest.mark.parametrize("backend", CONCURRENT)
def test_calls_of_the_whole_pool_are_refused_while_a_part_waits(backend: Any, tmp_path: Path) -> None:
    with waiting_part(backend, tmp_path) as (pool, _, _):
        for call in (lambda: pool.split(1), pool.discard, pool.reset, lambda: pool.call("pid")):
            with pytest.raises(StateError):
                call()


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_close_ends_the_calls_of_all_threads(backend: Any, tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(2)]
    pool = Pool(gated([*gates, None]), backend=backend, num_workers=3)
    pool.reset()
    *waiting, idle = pool.split(3)
    tasks = [Task(part.step, [1]) for part in waiting]
    for gate in gates:
        gate.await_arrival()
    is_killed = backend == "process"
    closing = Task(lambda: pool.close(terminate=is_killed))
    with pytest.raises(ClosedError):
        while True:
            idle.step([1])
    for gate in () if is_killed else gates:  # a thread cannot be killed, so the close waits for its step
        gate.open()
    for task in tasks:
        with pytest.raises(ClosedError):
            task.result()
    closing.result()
    assert pool.closed


def test_an_error_of_one_part_is_raised_in_its_own_thread(tmp_path: Path) -> None:
    def fail(env: Any, action: Any) -> None:
        if action == 999:
            raise ValueError("wrong action")

    envs: list[EnvFn] = [lambda i=i: HookedEnv(i, step=fail) for i in range(4)]  # type: ignore[misc]
    with Pool(envs, num_workers=4) as pool:
        failing, other = pool.split(2)
        failing.reset()

        def fail_and_go_on() -> int:
            errors = 0
            for n in range(60):
                if n % 3 != 0:
                    assert failing.step([1, 1]).rewards.tolist() == [1, 1]
                    continue
                with pytest.raises(EnvError) as raised:
                    failing.step([999, 999])
                assert sorted(failure.env_id for failure in raised.value.failures) == failing.env_ids.tolist()
                errors += 1
                failing.reset()
            return errors

        task = Task(checked_steps, other, 100)
        assert fail_and_go_on() == 20
        task.result()


def test_deaths_in_one_part_leave_the_rows_of_the_other_as_they_are() -> None:
    def die(env: Any, action: Any) -> None:
        if env.tag == 3 and env.total_steps == 7:
            kill_myself()

    envs: list[EnvFn] = [lambda i=i: HookedEnv(i, step=die) for i in range(4)]  # type: ignore[misc]
    with Pool(envs, num_workers=4, faults=FaultPolicy("restart", max_restarts=100, backoff=0.0)) as pool:
        first, second = pool.split(2)
        dying, other = (first, second) if 3 in first.env_ids else (second, first)
        dying.reset()

        task = Task(checked_steps, other, 300)
        assert sum(bool(dying.step([1] * 2).truncations.any()) for _ in range(40)) >= 3
        task.result()


# -- parts: calls, states, rollouts, replacements ------------------------------------------------------------


def full_life(part: Part) -> list[Any]:
    """Uses every method of a part, with episodes of 5 steps. Returns what they have returned."""
    seen: list[Any] = []
    first = part.env_ids[:1].tolist()
    part.reset(seed=3)
    for turn in range(6):
        part.set_reset_options({"level": turn})
        rollout = part.rollout(7)
        for step in rollout:
            step.act((part.env_ids + turn) % 1000, turn=np.full(part.num_envs, turn))
        seen += [rollout.obs.tolist(), rollout.rewards.tolist(), rollout.columns["turn"].tolist()]
        part.set_attr("mark", [turn] * (5000 if turn == 3 else 1))
        seen += [part.call("echo", turn), part.get_attr("mark"), part.render()[0].tolist()]
        answers = part.apply_async(lambda env: (env.tag, env.total_steps))
        seen += [part.step(part.env_ids).obs.tolist(), answers.result()]
        states = part.get_state(state_fns="attributes")
        part.step(part.env_ids)
        seen += [part.set_state(states).obs.tolist(), part.step(part.env_ids).obs.tolist()]
        if turn % 2 == 0:
            part.replace(first, [lambda turn=turn: LevelEnv(100 + turn, 5)])  # type: ignore[misc]
            seen.append(part.reset(env_ids=first).obs.tolist())
        seen.append(part.fork_state(int(part.env_ids[1]), first, state_fns="attributes").obs.tolist())
    return seen


def test_every_method_of_a_part_works_while_another_part_waits(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool([*gated([gate]), *levelled(3, length=5)], num_workers=4) as pool:
        pool.reset()
        slow, fast = pool.split(2)
        if 0 not in slow.env_ids:
            slow, fast = fast, slow
        task = Task(slow.step, [7] * slow.num_envs)
        gate.await_arrival()
        full_life(fast)
        gate.open()
        assert task.result().rewards.tolist() == [7] * slow.num_envs


def test_an_answer_that_another_thread_receives_ends_the_wait_for_it(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([gate, None], "call"), num_workers=2) as pool:
        pool.reset()
        asking, stepping = pool.split(2)
        for _ in range(5):
            is_answered = threading.Event()

            def step_on(is_answered: threading.Event = is_answered) -> None:
                while not is_answered.is_set():
                    stepping.step([1])

            answer, steps = Task(asking.call, "poke"), Task(step_on)
            gate.let_pass()
            assert answer.result() == ["poked"]
            is_answered.set()
            steps.result()


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_second_thread_may_not_call_the_envs_of_a_part_that_waits(backend: Any, tmp_path: Path) -> None:
    with waiting_part(backend, tmp_path) as (pool, slow, _):
        ids = slow.env_ids.tolist()
        for envs in (pool, slow):
            for call in (
                lambda envs=envs: envs.call("pid"),
                lambda envs=envs: envs.set_attr("mark", 1, ids),
                lambda envs=envs: envs.set_reset_options({}, ids),
                lambda envs=envs: envs.get_state(ids, state_fns="attributes"),
                lambda envs=envs: envs.replace(ids, counting(1)),
                lambda envs=envs: envs.rollout(2),
            ):
                with pytest.raises(StateError):
                    call()


def test_a_part_lives_on_while_workers_of_another_die() -> None:
    def die(env: Any, action: Any) -> None:
        if action == 999:
            kill_myself()

    with Pool(levelled(6, length=5), backend="serial", num_workers=6) as pool:
        first, second = (full_life(part) for part in pool.split(2))
    faults = FaultPolicy("restart", max_restarts=100, backoff=0.0)
    for dies_first in (True, False):
        expected = second if dies_first else first
        with Pool(levelled(6, length=5, step=die), num_workers=6, faults=faults) as pool:
            dying, other = pool.split(2) if dies_first else reversed(pool.split(2))
            dying.reset()
            task = Task(full_life, other)
            for n in range(6):
                batch = dying.step(np.where(dying.env_ids == dying.env_ids[n % 3], 999, 1))
                assert batch.truncations.sum() == 1
                assert len(dying.rollout(1).obs) == 2
            assert task.result() == expected


# -- batches ---------------------------------------------------------------------------------------------------


def test_three_threads_read_and_hold_batches_while_the_pool_steps() -> None:
    """The garbage collector runs meanwhile, and readers drop batches in other threads than the one that steps."""
    queues: list[queue.Queue[tuple[Batch, int] | None]] = [queue.Queue(3) for _ in range(3)]

    def info(tag: int, steps: int) -> dict[str, Any]:
        return {"n": steps, "inner": {"tag": tag}, **({"text": "x" * steps} if steps % 3 == 0 else {})}

    def read(batches: queue.Queue[tuple[Batch, int] | None]) -> int:
        held: list[tuple[Any, int]] = []
        while (item := batches.get()) is not None:
            batch, n = item
            held = [*held[-4:], (batch.obs, n)]
            infos = batch.infos
            assert [one["inner"]["tag"] for one in infos] == list(range(4))
            assert infos.stack()["n"].tolist() == [one["n"] for one in infos]
            assert all(obs.shape[0] == 4 for obs, _ in held)
            assert len({id(obs) for obs, _ in held}) == len(held)
            np.testing.assert_array_equal(batch.rewards, batch.rewards)
        return n

    collections: queue.Queue[bool] = queue.Queue(1)

    def collect() -> None:
        while collections.get():
            gc.collect()

    with Pool(with_infos(4, info, length=50), backend="serial", num_workers=2) as pool:
        pool.reset()
        readers, collector = [Task(read, one) for one in queues], Task(collect)
        for n in range(150):
            batch = pool.step([n % 2] * 4)
            for one in queues:
                one.put((batch, n))
            if n % 10 == 0:
                collections.put(True)
        for one in queues:
            one.put(None)
        assert [reader.result() for reader in readers] == [149] * 3
        collections.put(False)
        collector.result()


def test_arrays_that_another_thread_has_made_keep_their_values() -> None:
    """Another thread reads batches first, and drops them. So the pool cannot count the references to their arrays."""
    with Pool(counting(2), backend="serial", num_workers=2, frames=4) as pool:
        pool.reset()
        held: list[tuple[Any, Any]] = []
        for n in range(1, 200):
            batch = pool.step([n, n])
            if n % 3 == 0:
                held.append((Task(lambda batch=batch: batch.obs).result(), [n, n]))
            elif n % 3 == 1:
                Task(lambda batch=batch: batch.obs.sum()).result()
            if len(held) > 2:
                Task(held.pop, 0).result()
            for obs, actions in held:
                assert obs[:, 3].tolist() == actions


def test_frames_of_other_threads_are_used_again_once_they_are_dropped() -> None:
    """Otherwise batches would be copies, which are no views of the pool's memory."""
    with Pool(counting(2), backend="serial", num_workers=2, frames=3) as pool:
        pool.reset()
        for n in range(50):
            batch = pool.step([n, n])
            Task(lambda batch=batch: batch.obs.sum() + batch.rewards.sum()).result()
            assert not batch.obs.flags.owndata, n


class ChangingInfoEnv(CountingEnv):
    """A thread of this env changes the dict that it has returned as its info."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        self.info: dict[str, Any] = {"n": 0, "inner": {"a": 1.0}}
        self._turns: queue.Queue[int | None] = queue.Queue()
        self._thread = threading.Thread(target=self._change, daemon=True)
        self._thread.start()

    def _change(self) -> None:
        while (first := self._turns.get()) is not None:
            for n in range(first, first + 50):
                self.info[f"extra{n % 5}"] = float(n)
                self.info["inner"] = {"a": float(n), f"b{n % 3}": n}
                self.info.pop(f"extra{(n + 2) % 5}", None)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        self.info["n"] = self.steps
        self._turns.put(self.steps)
        return obs, reward, terminated, truncated, self.info

    def close(self) -> None:
        self._turns.put(None)
        self._thread.join()


def test_an_env_may_change_its_info_in_another_thread() -> None:
    """Python raises if a dict changes while it is pickled; that is an error of this env, and of no other one."""
    envs: list[EnvFn] = [lambda: ChangingInfoEnv(0), lambda: CountingEnv(1)]
    with Pool(envs, backend="serial", num_workers=2) as pool:
        pool.reset()
        for _ in range(200):
            try:
                assert isinstance(pool.step([1, 1]).infos[0]["n"], int)
            except EnvError as error:
                failed = [failure.env_id for failure in error.failures]
                pool.discard()
                pool.reset()
                assert failed == [0]


def test_a_forked_child_has_the_batches_of_all_threads() -> None:
    with Pool(counting(4), num_workers=2) as pool:
        first, second = pool.split(2)
        stopped = threading.Event()

        def step_on() -> None:
            first.reset()
            while not stopped.is_set():
                first.step([1, 1])

        task = Task(step_on)
        second.reset()
        for n in range(5):
            batch = second.step([n, n])
            if (child := os.fork()) == 0:
                os._exit(0 if batch.obs[:, 3].tolist() == [n, n] else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stopped.set()
        task.result()
