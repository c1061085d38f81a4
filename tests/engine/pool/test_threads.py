"""Pools and batches in several threads, with and without the GIL."""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_envs import CountingEnv, EnvFn, Gate, LevelEnv, begun, counting, gated, levelled, with_infos

from remuda import Batch, ClosedError, EnvError, Part, Pool, StateError

CONCURRENT = ("process", "thread")


def start(run: Callable[..., Any], *args: Any) -> Future[Any]:
    """Calls a function in a thread of its own."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(run, *args)
    executor.shutdown(wait=False)
    return future


# -- parts: tests/lives.py has those that are stepped by threads of their own -----------------------------


def test_a_second_thread_may_use_neither_a_part_that_waits_nor_the_whole_pool(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(gated([gate, None]), num_workers=2) as pool:
        slow, fast = pool.split(2)
        task = start(slow.step, [7])
        gate.await_arrival()
        ids = slow.env_ids.tolist()
        for call in (lambda: slow.step([1]), slow.recv, slow.reset, slow.discard, lambda: slow.send([1])):
            with pytest.raises(StateError, match="one thread at a time"):
                call()
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
        for call in (lambda: pool.split(1), pool.discard, pool.reset):
            with pytest.raises(StateError):
                call()
        assert fast.step([3]).rewards.tolist() == [3]
        gate.open()
        assert task.result().rewards.tolist() == [7]
        assert pool.split(1) == (pool,)


@pytest.mark.parametrize("backend", CONCURRENT)
def test_a_close_ends_the_calls_of_all_threads(backend: Any, tmp_path: Path) -> None:
    gates = [Gate(tmp_path, f"gate{i}") for i in range(2)]
    pool = begun(gated([*gates, None]), backend=backend, num_workers=3)
    *waiting, idle = pool.split(3)
    tasks = [start(part.step, [1]) for part in waiting]
    for gate in gates:
        gate.await_arrival()
    is_killed = backend == "process"
    closing = start(lambda: pool.close(terminate=is_killed))
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


def full_life(part: Part) -> None:
    """Uses every method of a part."""
    first = part.env_ids[:1].tolist()
    part.reset(seed=3)
    for turn in range(2):
        part.set_reset_options({"level": turn})
        for step in part.rollout(7):
            step.act((part.env_ids + turn) % 1000, turn=np.full(part.num_envs, turn))
        part.set_attr("mark", [turn] * 5000)
        assert part.call("echo", turn) and part.get_attr("mark") and part.render()
        answers = part.apply_async(lambda env: (env.tag, env.total_steps))
        part.step(part.env_ids)
        assert answers.result()
        part.set_state(part.get_state(state_fns="attributes"))
        part.replace(first, [lambda turn=turn: LevelEnv(100 + turn, 5)])  # type: ignore[misc]
        part.reset(env_ids=first)
        part.fork_state(int(part.env_ids[1]), first, state_fns="attributes")


@pytest.mark.parametrize("backend", CONCURRENT)
def test_every_method_of_a_part_works_while_another_part_waits(backend: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun([*gated([gate]), *levelled(3, length=5)], backend=backend, num_workers=4) as pool:
        slow, fast = pool.split(2)
        if 0 not in slow.env_ids:
            slow, fast = fast, slow
        task = start(slow.step, [7] * slow.num_envs)
        gate.await_arrival()
        full_life(fast)
        gate.open()
        assert task.result().rewards.tolist() == [7] * slow.num_envs


def test_parts_of_a_serial_pool_may_be_stepped_by_threads() -> None:
    with begun(levelled(8, length=5), backend="serial", num_workers=4) as pool:
        tasks = [start(full_life, part) for part in pool.split(4)]
        assert [task.result() for task in tasks] == [None] * 4


def test_an_answer_that_another_thread_receives_ends_the_wait_for_it(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(gated([gate, None], "call"), num_workers=2) as pool:
        asking, stepping = pool.split(2)
        for _ in range(5):
            is_answered = threading.Event()

            def step_on(is_answered: threading.Event = is_answered) -> None:
                while not is_answered.is_set():
                    stepping.step([1])

            answer, steps = start(asking.call, "poke"), start(step_on)
            gate.let_pass()
            assert answer.result() == ["poked"]
            is_answered.set()
            steps.result()


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
            assert all(obs.tolist() == [n + 2] * 4 for obs, n in held)  # the numbers of results so far
            assert len({id(obs) for obs, _ in held}) == len(held)
            np.testing.assert_array_equal(batch.rewards, batch.rewards)
        return n

    collections: queue.Queue[bool] = queue.Queue(1)

    def collect() -> None:
        while collections.get():
            gc.collect()

    with begun(with_infos(4, info, length=50), backend="serial", num_workers=2) as pool:
        readers, collector = [start(read, one) for one in queues], start(collect)
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


class ChangingInfoEnv(CountingEnv):
    """A thread of this env changes the dict that it has returned as its info."""

    def step(self, action: Any) -> Any:
        info: dict[str, Any] = {"n": self.steps, "inner": {"a": 1.0}}
        start(self._change, info)
        return *super().step(action)[:4], info

    def _change(self, info: dict[str, Any]) -> None:
        for n in range(500):
            info[f"extra{n % 5}"] = float(n)
            info["inner"] = {"a": float(n), f"b{n % 3}": n}
            info.pop(f"extra{(n + 2) % 5}", None)


def test_an_env_may_change_its_info_in_another_thread() -> None:
    """Python raises if a dict changes while it is pickled; that is an error of this env, and of no other one."""
    envs: list[EnvFn] = [ChangingInfoEnv, lambda: CountingEnv(1)]
    with begun(envs, backend="serial", num_workers=2) as pool:
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

        task = start(step_on)
        second.reset()
        for n in range(5):
            batch = second.step([n, n])
            if (child := os.fork()) == 0:
                os._exit(0 if batch.obs[:, 3].tolist() == [n, n] else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stopped.set()
        task.result()
