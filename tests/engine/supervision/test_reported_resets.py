"""With `FaultPolicy(resets="report")` a reset that fails returns the row of a fault, and the caller decides."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import accidents
import pytest
from accidents import once
from failing import LIMIT
from pool_envs import HookedEnv, TextEnv, begun
from programs import kill, pids_of

from remuda import FaultPolicy, InvalidEnvError, Pool, StateError, load_record

REPORT = FaultPolicy("restart", resets="report", max_restarts=0)


def obey(env: Any) -> None:
    """Does what the options of a reset say."""
    accident = (env.last_options or {}).get("do")
    if accident is not None:
        getattr(accidents, accident)(env)


def obedient(num_envs: int, length: int = 1_000_000, **hooks: Any) -> list[Any]:
    hooks = {"reset": obey, "autoreset": obey, **hooks}
    return [(lambda tag=i: HookedEnv(tag, length, **hooks)) for i in range(num_envs)]  # type: ignore[misc]


def report_of(batch: Any, row: int = 0) -> Any:
    """Returns the fault in a row, whose numbers are those of a fault."""
    assert batch.truncations[row] and not batch.terminations[row] and batch.rewards[row] == 0
    return batch.infos[row]["fault"]


@pytest.mark.parametrize(
    ("backend", "num_workers", "accident", "kind"),
    [
        ("process", 1, "kill_myself", "death"),
        ("process", 3, "kill_myself", "death"),
        ("process", 3, "stop_myself", "timeout"),
        ("process", 1, "raise_value_error", "exception"),
        ("thread", 3, "raise_value_error", "exception"),
        ("serial", 1, "raise_value_error", "exception"),
    ],
)
def test_a_failed_reset_is_reported_as_often_as_it_fails(
    backend: Any, num_workers: int, accident: str, kind: str
) -> None:
    policy = replace(REPORT, reset_timeout=4 * LIMIT) if kind == "timeout" else REPORT
    options: Any = {"backend": backend, "num_workers": num_workers, "autoreset": "disabled", "faults": policy}
    with begun(obedient(3), **options) as pool:
        pool.step([1, 1, 1])
        for i in range(3):
            batch = pool.reset(env_ids=[1], options={"do": accident})
            fault = report_of(batch)
            assert (fault.kind, fault.operation, fault.env_id) == (kind, "reset", 1)
            assert batch.obs.tolist() == [[1, 1, 1, 1]]  # the last one of the episode before
            with pytest.raises(StateError, match="call reset first"):
                pool.step([0], [1])
            if i == 1:
                pool.request_obs([1])
                assert pool.recv().obs.tolist() == [[1, 1, 1, 1]]
        assert pool.reset(env_ids=[1]).obs[0, 2] == 0
        assert pool.step([5], [1]).rewards.tolist() == [5]
        if backend != "process" or num_workers == 3 or kind == "exception":  # others are not disturbed
            assert pool.step([5, 6], [0, 2]).obs[:, 2].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("backend", "num_workers", "accident", "kind"),
    [
        ("process", 2, "kill_myself", "death"),
        ("process", 1, "raise_value_error", "exception"),
        ("thread", 1, "raise_value_error", "exception"),
        ("serial", 1, "raise_value_error", "exception"),
    ],
)
def test_a_build_that_fails_is_reported(
    backend: Any, num_workers: int, accident: str, kind: str, tmp_path: Path
) -> None:
    builds = once(tmp_path / "once", getattr(accidents, accident), skip=2)  # the first rebuild fails
    options: Any = {"backend": backend, "num_workers": num_workers, "autoreset": "disabled", "faults": REPORT}
    with begun(obedient(2, build=builds), **options) as pool:
        assert report_of(pool.reset(env_ids=[1], options={"do": accident})).operation == "reset"
        fault = report_of(pool.reset(env_ids=[1]))
        assert (fault.operation, fault.kind) == ("build", kind)
        assert pool.reset(env_ids=[1]).infos[0] == {}
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]


def test_resets_of_neighbours_in_the_worker_are_repeated() -> None:
    with begun(obedient(3), num_workers=1, autoreset="disabled", faults=REPORT) as pool:
        batch = pool.reset(options=[None, {"do": "kill_myself"}, None])
        assert [("fault" in info) for info in batch.infos] == [False, True, False]
        assert batch.truncations.tolist() == [False, True, False]
        pool.send([1], [0])
        pool.send_reset(env_ids=[1], options={"do": "kill_myself"})
        batch = pool.recv(order="slot")
        assert len(batch) == 2 and report_of(batch, 1).operation == "reset"
        pool.step([1], [2])  # cut off, if the worker's death came before it


def test_episodes_of_neighbours_in_the_worker_end_with_their_rows() -> None:
    with Pool(obedient(3), num_workers=1, autoreset="disabled", faults=REPORT) as pool:
        for _ in range(3):
            pool.reset()
            pool.step([1, 1, 1])
            assert not report_of(pool.reset(env_ids=[1], options={"do": "kill_myself"})).shared
            batch = pool.step([1, 1], [0, 2])
            for row in (0, 1):
                fault = report_of(batch, row)
                assert fault.shared and fault.operation == "reset"
            assert batch.obs[:, 2].tolist() == [1, 1]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_reset_that_hangs_in_a_thread_is_reported(num_workers: int) -> None:
    release = threading.Event()

    def hang(env: Any) -> None:
        if env.last_options == {"do": "hang"}:
            release.wait(60)

    policy = replace(REPORT, reset_timeout=4 * LIMIT, abandon_hung_threads=True)
    fns = obedient(2, reset=hang, autoreset=hang)
    with begun(fns, num_workers=num_workers, backend="thread", autoreset="disabled", faults=policy) as pool:
        for _ in range(2):
            fault = report_of(pool.reset(env_ids=[1], options={"do": "hang"}))
            assert (fault.kind, fault.operation, fault.env_id) == ("timeout", "reset", 1)
        assert pool.reset(env_ids=[1]).infos[0] == {}
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]
        release.set()
    for thread in threading.enumerate():  # those that the pool has left end with the calls that hung
        if thread.name.startswith("remuda-"):
            thread.join()


def test_an_env_that_never_was_reset_has_no_last_observation() -> None:
    class Failing(TextEnv):
        def reset(self, **_: Any) -> Any:
            raise ValueError("never")

    with Pool([TextEnv, Failing], num_workers=1, autoreset="disabled", faults=REPORT) as pool:
        batch = pool.reset()
        assert report_of(batch, 1).operation == "reset" and batch.obs[1] is None
    with Pool(obedient(1), autoreset="disabled", faults=REPORT) as numbers:
        assert numbers.reset(options={"do": "kill_myself"}).obs.tolist() == [[0, 0, 0, 0]]


def test_faults_in_steps_and_of_idle_workers_count_as_before() -> None:
    policy = FaultPolicy("restart", resets="report", max_restarts=1)
    with begun(obedient(2), num_workers=2, autoreset="disabled", faults=policy) as pool:
        kill(pool, 1)
        assert report_of(pool.step([1, 1]), 1).operation == "nothing"
        assert pool.reset(env_ids=[1]).infos[0] == {}
        kill(pool, 1)
        with pytest.raises(Exception, match="max_restarts=1"):
            pool.step([1, 1])


def test_a_reset_that_had_not_begun_when_its_worker_died_is_made_by_the_successor() -> None:
    policy = FaultPolicy("restart", resets="report")
    with begun(obedient(2), num_workers=2, autoreset="disabled", faults=policy) as pool:
        os.kill(pids_of(pool)[1], signal.SIGSTOP)
        pool.send_reset(env_ids=[1])
        kill(pool, 1)
        batch = pool.recv()
        assert batch.infos[0] == {} and not batch.truncations[0]


@pytest.mark.parametrize("accident", ["kill_myself", "raise_value_error"])
def test_a_reported_reset_leaves_a_crash_record_and_a_call_builds_the_env(accident: str, tmp_path: Path) -> None:
    with begun(obedient(1), autoreset="disabled", faults=REPORT, crash_dir=tmp_path) as pool:
        pool.reset(options={"do": accident})
        assert pool.get_attr("episodes") == [0]
    assert load_record(next(tmp_path.glob("*.remuda"))).fault.operation == "reset"


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="expected on_fault='restart' with resets='report', got 'raise'"):
        FaultPolicy(resets="report")
    with pytest.raises(ValueError, match="expected resets to be one of"):
        FaultPolicy("restart", resets="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidEnvError):  # the first build is no fault
        Pool([lambda: None], faults=REPORT, autoreset="disabled")
