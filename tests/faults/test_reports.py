"""What is told of a fault: in errors, in infos and in logs."""

from __future__ import annotations

import logging
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import die, final_info
from pool_envs import NestedEnv, counting, hooked, raising
from programs import kill

from remuda import EnvError, Fault, FaultPolicy, Pool, Recording, RemoteTraceback, WorkerDiedError

BROKEN = raising(lambda: ValueError("broken"))


def broken_in_third_step(env: Any, _: Any) -> None:
    if env.steps == 3:
        raise ValueError("broken")


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_an_exception_says_how_far_the_env_had_come(backend: Any) -> None:
    with Pool(hooked(3, step=broken_in_third_step), backend=backend) as pool:
        pool.reset(seed=40)
        pool.step([7, 8, 9])
        pool.step([7, 8, 9])
        with pytest.raises(EnvError) as raised:
            pool.step([7, 8, 9])
        (failure,) = raised.value.failures
        assert failure.where is not None
        assert (failure.where.env_id, failure.where.episode, failure.where.step) == (1, 0, 3)
        assert (failure.where.seed, failure.where.resets_since_seed, failure.where.action) == (41, 0, 8)
        assert str(raised.value) == (
            "env 1 (worker 1) raised ValueError in step: broken (episode 0, step 3, seed 41, last action 8)"
        )
        assert isinstance(raised.value.__cause__, ValueError)
        assert isinstance(raised.value.__cause__.__cause__, RemoteTraceback)
        assert "broken_in_third_step" in str(raised.value.__cause__.__cause__)


def test_a_death_says_how_far_the_env_had_come() -> None:
    dies = lambda env, _: die() if (env.episodes, env.steps) == (3, 2) else None  # noqa: E731
    with Pool(hooked(3, length=4, step=dies), num_workers=2, autoreset="same_step") as pool:
        pool.reset(seed=[5, 6, 7])
        for _ in range(9):
            pool.step([1, 2, 3])
        with pytest.raises(WorkerDiedError) as raised:
            pool.step([1, 2, 3])
        error = raised.value
        assert (error.worker, error.env_ids, error.operation, error.exitcode) == (0, (0, 1), "step", -signal.SIGKILL)
        assert error.where is not None
        assert (error.where.env_id, error.where.episode, error.where.step) == (1, 2, 2)
        assert (error.where.seed, error.where.resets_since_seed, error.where.action) == (6, 2, 2)
        assert f"worker 0 (pid {error.pid}, env 0, 1) died while in step" in str(error)
        assert "(env 1, episode 2, step 2, seed 6 and 2 resets, last action 2): killed by SIGKILL" in str(error)


def test_a_seed_counts_from_the_reset_that_had_it() -> None:
    with Pool(hooked(1, which=[0], step=BROKEN), backend="serial") as pool:
        pool.reset(seed=9)
        pool.reset()
        pool.reset(seed=11)
        pool.reset(seed=[None])
        with pytest.raises(EnvError) as raised:
            pool.step([1])
        where = raised.value.failures[0].where
        assert where is not None
        assert (where.episode, where.seed, where.resets_since_seed) == (3, 11, 1)


def test_actions_of_several_leaves_are_told() -> None:
    class Falls(NestedEnv):
        def step(self, action: Any) -> Any:
            raise ValueError("fallen")

    with Pool([Falls], backend="serial") as pool:
        pool.reset()
        push, choice, keys = np.array([[0.5, -0.5]], np.float32), np.array([3]), np.array([[1, 0]], np.int8)
        with pytest.raises(EnvError) as raised:
            pool.step({"push": push, "keys": (choice, keys)})
        where = raised.value.failures[0].where
        assert where is not None
        assert where.action["push"].tolist() == [0.5, -0.5]
        assert (int(where.action["keys"][0]), where.action["keys"][1].tolist()) == (3, [1, 0])


def test_faults_are_logged_with_env_and_worker(caplog: pytest.LogCaptureFixture) -> None:
    with Pool(counting(4), num_workers=2, faults="restart", autoreset="same_step") as pool:
        pool.reset()
        kill(pool, 1)
        with caplog.at_level(logging.WARNING, logger="remuda"):
            pool.step([1] * 4)
    told = [record for record in caplog.records if record.name == "remuda"]
    assert [(record.worker, record.env) for record in told] == [(1, 2), (1, 3)]  # type: ignore[attr-defined]
    assert "worker 1" in told[0].message
    assert told[1].message.startswith("env 3 went with its worker: worker 1 ")


def test_a_fault_can_be_pickled_and_keeps_its_text() -> None:
    """For whoever sends infos on, to a logger or another machine."""
    faults = FaultPolicy("restart", backoff=0)
    with Pool(hooked(2, step=BROKEN), faults=faults, autoreset="same_step") as pool:
        pool.reset()
        fault = final_info(pool.step([1, 1]), 1)["fault"]
        kill(pool, 0)
        death = final_info(pool.step([1, 1]), 0)["fault"]
    for original in (fault, death):
        copy = pickle.loads(pickle.dumps(original))
        assert isinstance(copy, Fault)
        assert (copy, str(copy)) == (original, str(original))
        assert type(copy.error) is type(original.error)


def test_stats_count_restarts() -> None:
    with Pool(counting(3), faults=FaultPolicy("restart", backoff=0), autoreset="same_step") as pool:
        pool.reset()
        assert pool.stats().restarts == 0
        for worker in (0, 2):
            kill(pool, worker)
            pool.step([1] * 3)
        assert pool.stats().restarts == 2


def test_a_format_may_name_worker_and_env_in_every_record(tmp_path: Path) -> None:
    """Also in those that are about none, such as that the last crash record was written."""
    told: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(self.format(record))

    handler = Keeping()
    handler.setFormatter(logging.Formatter("[%(worker)s %(env)s] %(message)s"))
    logging.getLogger("remuda").addHandler(handler)
    try:
        recording = Recording(tmp_path, max_files=1)
        with Pool(hooked(1, which=[0], step=BROKEN), backend="serial", record=recording) as pool:
            pool.reset()
            with pytest.raises(EnvError):
                pool.step([0])
    finally:
        logging.getLogger("remuda").removeHandler(handler)
    (line,) = told
    assert line.startswith("[None None] ")
    assert "max_files=1" in line
