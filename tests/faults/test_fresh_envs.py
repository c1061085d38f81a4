"""What is asked of an env between its fault and its next episode, and of a worker between two processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_envs import CountingEnv, Gate, Gauge, HookedEnv, TextEnv
from programs import kill

from remuda import Batch, FaultPolicy, Pool, RestartLimitError

RESTART = FaultPolicy("restart", backoff=0)
WAITING = FaultPolicy("restart", backoff=0.2)  # before every restart but the first


def restarting(env_fns: Any, faults: FaultPolicy = RESTART, **options: Any) -> Pool:
    return Pool(env_fns, faults=faults, advise=False, **options)


def observe(pool: Pool) -> Batch:
    pool.send_observe()
    return pool.recv()


def clumsy(tag: int) -> Callable[[], Any]:
    """An env that fails in the second step of every episode."""

    def fail(env: Any, action: int) -> None:
        if env.steps == 2:
            raise ValueError("broken")

    return lambda: HookedEnv(tag, step=fail)


# -- between two processes -------------------------------------------------------------------------------


def test_what_is_too_big_for_shared_memory_waits_for_the_successor() -> None:
    text = "x" * 3_000_000
    with restarting([TextEnv] * 2, WAITING) as pool:
        for _ in range(2):  # the second time nobody is there for a while
            pool.reset()
            kill(pool, 1)
            assert pool.step(("a", "b")).truncated.tolist() == [False, True]
        size = pool.apply_async(lambda env, data: len(data), (text,), env_ids=[1])
        pool.send_reset(options={"text": text}, env_ids=[1])
        assert pool.recv().obs == (text,)
        assert size.result() == [len(text)]


def test_what_is_too_big_for_shared_memory_survives_a_build_that_fails(tmp_path: Path) -> None:
    text, builds = "x" * 3_000_000, Gauge(tmp_path / "builds")
    gate = Gate(tmp_path)

    def make() -> TextEnv:
        builds.enter()
        if builds.entries() == 2:
            gate.wait()
            raise ValueError("broken")
        return TextEnv()

    with restarting([TextEnv, make]) as pool:
        pool.reset()
        kill(pool, 1)
        assert pool.step(("a", "b")).truncated.tolist() == [False, True]
        pool.send_reset(options={"text": text}, env_ids=[1])
        gate.let_pass()
        assert pool.recv().obs == (text,)


def test_a_successor_that_does_not_get_its_envs_built_is_ended(tmp_path: Path) -> None:
    builds, note = Gauge(tmp_path / "builds"), tmp_path / "pid"

    def make() -> CountingEnv:
        builds.enter()
        if builds.entries() == 2:
            note.write_text(str(os.getpid()))
            Gate(tmp_path).wait()  # nobody comes
        return CountingEnv(1)

    with restarting([CountingEnv, make], start_timeout=2.0) as pool:
        pool.reset()
        kill(pool, 1)
        pool.step([1, 1])
        assert pool.step([2, 2]).obs[1].tolist() == [1, 1, 0, -1]
        assert not Path(f"/proc/{note.read_text()}").exists()


@pytest.mark.parametrize("kind", ["death", "exception", "timeout"])
def test_faults_of_a_build_have_their_kind_and_hold_no_memory_of_the_pool(kind: str, tmp_path: Path) -> None:
    """(That no memory is held is seen by whoever watches the test.)"""
    builds = Gauge(tmp_path / "builds")

    def make() -> CountingEnv:
        builds.enter()
        if builds.entries() > 1:
            {"death": os.abort, "exception": fail, "timeout": Gate(tmp_path, str(os.getpid())).wait}[kind]()
        return CountingEnv(1)

    def fail() -> None:
        raise ValueError("broken")

    policy = FaultPolicy("restart", backoff=0, max_restarts=1)
    with restarting([CountingEnv, make], policy, start_timeout=2.0) as pool:
        pool.reset()
        kill(pool, 1)
        pool.step([1, 1])
        with pytest.raises(RestartLimitError) as raised:
            pool.step([2, 2])
        KEPT[:] = raised.value.faults
        assert [(fault.kind, fault.operation) for fault in KEPT[1:]] == [(kind, "build")]
    del raised


KEPT: list[Any] = []
