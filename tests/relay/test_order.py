"""When log records of workers arrive: before the result that they belong to, and while the pool waits."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from pool_envs import Gate, hooked
from relayed import log, texts

from remuda import EnvError, Pool, WorkerDiedError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # newer Pythons, of fork
]
START_METHODS = ("forkserver", "spawn", "fork")


def test_records_appear_while_the_pool_waits(reaction: Any, tmp_path: Path) -> None:
    """No result comes before the record has been handled: it is the handler that lets the env go on."""
    gate = Gate(tmp_path)

    def step(*_: Any) -> None:

        logging.getLogger("test.env").info("waiting for you")
        gate.wait()

    reaction(gate.let_pass)
    with Pool(hooked(2, step=step)) as pool:
        pool.reset()
        assert pool.step([1, 2]).reward.tolist() == [1, 2]


def test_records_appear_while_envs_are_built(reaction: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    def build(*_: Any) -> None:

        logging.getLogger("test.env").info("waiting for you")
        gate.wait()

    reaction(gate.let_pass)
    Pool(hooked(2, build=build), start_timeout=None).close()


def test_records_appear_though_results_keep_coming(heard: list[Any]) -> None:
    """The short way of `recv` has no time for them; they are not forgotten over it."""
    with Pool(hooked(2, step=log("stepping"))) as pool:
        pool.reset()
        steps = 0
        while not heard:  # the watchdog bounds this
            pool.step([0, 0])
            steps += 1
    assert texts(heard) == ["stepping"] * steps


def test_what_a_step_logs_and_warns_comes_before_its_result(heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:
        import warnings

        logging.getLogger("test.env").info("%d of %d", env.total_steps, env.tag)
        warnings.warn(f"{env.total_steps} of {env.tag}", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        pool = Pool(hooked(4, range(4), step=step), num_workers=2)
    with pool:
        pool.reset()
        for i in range(1, 40):
            heard.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pool.step([0] * 4)
            expected = sorted(f"{i} of {env}" for env in range(4))
            assert sorted(texts(heard)) == expected
            assert sorted(str(one.message) for one in caught) == expected


def test_what_a_step_logs_comes_before_its_result_in_a_partial_batch(heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:

        logging.getLogger("test.env").info("%d of %d", env.total_steps, env.tag)

    steps = dict.fromkeys(range(3), 1)
    with Pool(hooked(3, range(3), step=step)) as pool:
        pool.reset()
        pool.send([0] * 3)
        while sum(steps.values()) < 100:
            batch = pool.recv(min_envs=1)
            for env in batch.env_ids.tolist():
                assert f"{steps[env]} of {env}" in texts(heard)
                steps[env] += 1
            pool.send([0] * len(batch.env_ids), batch.env_ids)


def test_so_does_what_the_socket_has_no_room_for(heard: list[Any]) -> None:
    """It waits in the workers until the pool has read what came before."""

    def step(env: Any, action: Any) -> None:

        for i in range(200):
            logging.getLogger("test.env").info("%d %d %s", env.tag, i, "x" * 1000)

    with Pool(hooked(3, range(3), step=step)) as pool:
        pool.reset()
        for _ in range(3):
            heard.clear()
            pool.step([0] * 3)
            assert len(texts(heard)) == 600


def test_who_is_killed_before_his_words_were_sent_holds_nobody_up(heard: list[Any], tmp_path: Path) -> None:
    """A worker that is stopped while its words wait for room does not send them; the other's are not lost over it."""
    gate = Gate(tmp_path)

    def step(env: Any, action: Any) -> None:

        if env.tag == 1:
            for i in range(1000):
                logging.getLogger("test.env").info("lost %d", i)
            gate.wait()

    with Pool(hooked(2, (0, 1), step=step)) as pool:
        pool.reset()
        pool.send([0, 0])
        gate.await_arrival()
        os.kill(pool.workers[1].pid or 0, signal.SIGSTOP)
        for i in range(1, 4):
            assert pool.recv(min_envs=1).env_ids.tolist() == [0]
            pool.send([i], [0])
        os.kill(pool.workers[1].pid or 0, signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            while True:
                pool.recv(min_envs=2)


def test_what_an_env_logged_comes_before_what_it_raised(heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:

        logging.getLogger("test.env").info("about to fail")
        raise ValueError("failed")

    with Pool(hooked(2, step=step)) as pool:
        pool.reset()
        with pytest.raises(EnvError):
            pool.step([0, 0])
        assert texts(heard) == ["about to fail"]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_what_a_worker_logged_outlives_it(start_method: Any, heard: list[Any]) -> None:
    def step(env: Any, action: Any) -> None:

        logging.getLogger("test.env").info("about to die")
        os.kill(os.getpid(), signal.SIGKILL)

    with Pool(hooked(2, step=step), start_method=start_method) as pool:
        pool.reset()
        with pytest.raises(WorkerDiedError):
            pool.step([0, 0])
        assert texts(heard) == ["about to die"]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_records_of_a_start_that_fails(start_method: Any, heard: list[Any]) -> None:
    def build(env: Any) -> None:

        logging.getLogger("test.env").info("no licence")
        raise ValueError("no")

    with pytest.raises(EnvError):
        Pool(hooked(2, build=build), start_method=start_method)
    assert [(r.worker, r.env, r.getMessage()) for r in heard] == [(1, 1, "no licence")]


def test_records_of_a_pool_that_is_terminated_or_forgotten(heard: list[Any]) -> None:
    for end in ("terminate", "forget"):
        heard.clear()
        pool: Any = Pool(hooked(2, reset=log("reset")))
        pool.send_reset()
        while not pool._engine.running.hub.needs_attention and pool._exchange.ready(0) < 2:
            pool._engine.running.hub.wait(2, -1, 0)
        if end == "terminate":
            pool.close(terminate=True)
        del pool
        assert texts(heard) == ["reset"]
