"""Reports of faults in errors, infos and logs."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import re
import signal
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from accidents import die, kill_myself, raise_value_error
from failing import MODES, fault_in, final_info
from odd_exceptions import raising
from pairs import each
from pool_envs import CountingEnv, begun, counting, hooked
from programs import kill
from replays import at_step, broken

from remuda import (
    BrokenPoolError,
    CrashDir,
    EnvError,
    Fault,
    FaultPolicy,
    Pool,
    RemoteTraceback,
    RestartLimitError,
    WorkerDiedError,
)

BROKEN = raising(lambda: ValueError("broken"))

REMEDY = '; pass faults="restart" to continue after faults, and crash_dir="crashes" to replay them'


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({}, REMEDY),
        ({"crash_dir": "crashes"}, '; pass faults="restart" to continue after faults'),
        ({"faults": FaultPolicy("restart", max_restarts=0)}, ""),
        ({"log_advice": False}, ""),
    ],
    ids=str,
)
def test_errors_name_the_options_that_help(
    options: dict[str, Any], remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of envs and deaths, and those of later calls to an env that is lost; not errors of calls."""
    monkeypatch.chdir(tmp_path)
    died = "in step (env 1, episode 0, step 2, no seed, last action 0): it exited with code 3"
    dies = lambda env, _: os._exit(3) if env.steps == 2 else None  # noqa: E731
    with Pool(hooked(2, [1], step=dies, render=BROKEN), num_workers=2, **options) as pool:
        with pytest.raises(EnvError) as call:
            pool.render()
        pool.reset()
        pool.step([0, 0])
        with pytest.raises((WorkerDiedError, RestartLimitError)) as death:
            pool.step([0, 0])
        with pytest.raises(BrokenPoolError) as later:
            pool.step([0, 0])
    assert "pass faults" not in str(call.value)
    assert str(death.value).endswith(died + remedy) or "crash_dir" in options
    assert [str(error.value).count('pass faults="restart"') for error in (death, later)] == [int(bool(remedy))] * 2
    assert str(later.value).endswith(f"make a new one{remedy}")


OLD_API = (
    r"reset\(\) got an unexpected keyword argument '(seed|options)'; write "
    r"`def reset\(self, \*, seed=None, options=None\)`(, and give step\(\) five results: gym before 0.26 had no seed=)?"
)


class OldEnv(CountingEnv):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


@pytest.mark.parametrize(
    ("env_fns", "first", "later", "message"),
    [
        (hooked(1, [0], reset=BROKEN), {}, None, "broken"),
        (hooked(1, [0], step=BROKEN), {}, None, "broken"),
        (hooked(1, [0], step=lambda env, _: (env.observe(), 0.0, False, {})), {}, None, r"expected step\(\) to return"),
        ([OldEnv], {"seed": 1}, None, OLD_API),
        ([OldEnv], {"options": {}}, None, OLD_API),
        ([OldEnv], {}, {"seed": 1}, OLD_API),
        (hooked(1, [0], length=2, step=lambda env, _: "text" if env.episodes == 2 else None), {}, {}, "expected step"),
    ],
)
def test_restarts_are_no_remedy_for_bugs_of_the_first_reset_or_step_and_errors_of_the_protocol(
    env_fns: Any, first: Any, later: Any, message: str
) -> None:
    """Errors of the protocol repeat in each episode, also if the first one has none."""
    with Pool(env_fns, backend="serial") as pool, pytest.raises(EnvError, match=message) as raised:
        pool.reset(**first)
        for _ in range(4):
            pool.step([0])
        pool.reset(**later)
    assert later is None or "episode 0" not in str(raised.value)
    assert "pass faults" not in str(raised.value)
    if message == OLD_API:  # faces raise the cause itself
        assert isinstance(raised.value.__cause__, TypeError) and re.search(OLD_API, str(raised.value.__cause__))


def test_an_exception_reports_episode_step_seed_and_action() -> None:
    with begun(hooked(3, step=at_step(3, broken)), seed=40) as pool:
        pool.step([7, 8, 9])
        pool.step([7, 8, 9])
        with pytest.raises(EnvError) as raised:
            pool.step([7, 8, 9])
        (failure,) = raised.value.failures
        assert failure.where is not None
        assert (failure.where.env_id, failure.where.episode, failure.where.step) == (1, 0, 3)
        assert (failure.where.seed, failure.where.resets_since_seed, failure.where.action) == (41, 0, 8)
        assert str(raised.value) == (
            f"env 1 (worker 1) raised ValueError in step: broken (episode 0, step 3, seed 41, last action 8){REMEDY}"
        )
        assert isinstance(raised.value.__cause__, ValueError)
        assert isinstance(raised.value.__cause__.__cause__, RemoteTraceback)
        assert "in broken" in str(raised.value.__cause__.__cause__)


def test_a_death_reports_episode_step_seed_and_action() -> None:
    dies = lambda env, _: die() if (env.episodes, env.steps) == (3, 2) else None  # noqa: E731
    with begun(hooked(3, length=4, step=dies), seed=5, num_workers=2, autoreset="same_step") as pool:
        for _ in range(9):
            pool.step([1, 2, 3])
        with pytest.raises(WorkerDiedError) as raised:
            pool.step([1, 2, 3])
        error = raised.value
        assert (error.worker, error.env_ids, error.operation, error.exitcode) == (0, (0, 1), "step", -signal.SIGKILL)
        assert error.where is not None
        assert (error.where.env_id, error.where.episode, error.where.step) == (1, 2, 2)
        assert (error.where.seed, error.where.resets_since_seed, error.where.action) == (6, 2, 2)
        assert f"worker 0 (pid {error.pid}, envs 0, 1) died while in step" in str(error)
        assert "(env 1, episode 2, step 2, seed 6 and 2 resets, last action 2): killed by SIGKILL" in str(error)


def test_a_death_is_logged_once_with_env_and_worker(caplog: pytest.LogCaptureFixture) -> None:
    with begun(counting(8), num_workers=2, faults="restart", autoreset="same_step") as pool:
        kill(pool, 1)
        pool.step([1] * 8)
    record: Any
    (record,) = caplog.records
    assert (record.worker, record.env) == (1, 4)
    assert [fault[:2] for fault in record.faults] == [(env, 1) for env in range(4, 8)]
    assert record.faults[1][2].startswith("env 5 went with its worker: worker 1 ")
    assert re.match(r"worker 1 \(pid \d+, envs 4-7\) died .*; it is restarted at once$", record.message)


def test_a_log_has_the_time_of_the_restart(caplog: pytest.LogCaptureFixture) -> None:
    policy = FaultPolicy("restart", backoff=0.25, max_restarts=2)
    with begun(counting(1), faults=policy, autoreset="same_step") as pool:
        for _ in range(2):
            kill(pool, 0)
            pool.step([1])
        kill(pool, 0)
        with pytest.raises(RestartLimitError):
            pool.step([1])
    ends = [record.message.rpartition("; ")[2] for record in caplog.records]
    assert ends == ["it is restarted at once", "it is restarted in 0.25 s", "it is no longer restarted"]


def test_equal_exceptions_are_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    def step(env: Any, action: Any) -> None:
        raise ValueError("odd" if env.tag == 7 else "broken")

    with begun(hooked(10, range(1, 10), step=step), num_workers=1, faults="restart", autoreset="same_step") as pool:
        pool.step([1] * 10)
    logged: list[Any] = caplog.records
    assert [(record.env, re.sub(r" \(env.*\)| \(episode.*\)", "", record.message)) for record in logged] == [
        (1, "envs 1-6, 8, 9 (worker 0) raised ValueError in step: broken; it is rebuilt"),
        (7, "env 7 (worker 0) raised ValueError in step: odd; it is rebuilt"),
    ]


def test_equal_exceptions_are_raised_as_one() -> None:
    """Exceptions that differ in an address are equal."""

    def step(env: Any, action: Any) -> None:
        raise ValueError(f"{env!r} at {env.tag * 0xABCD + 0x7F41003653C0:#x} is no good")

    with begun(hooked(64, range(64), step=step), num_workers=4) as pool:
        with pytest.raises(EnvError, match=r"^envs 0-63 \(workers 0-3\) raised ValueError in step: <pool") as raised:
            pool.step([1] * 64)
        assert len(raised.value.failures) == 64
        assert str(raised.value).count("raised") == 1


def test_a_fault_can_be_pickled_and_keeps_its_text() -> None:
    """Faults in infos may be sent to a logger or another machine."""
    faults = FaultPolicy("restart", backoff=0)
    with begun(hooked(2, step=BROKEN), faults=faults, autoreset="same_step") as pool:
        fault = final_info(pool.step([1, 1]), 1)["fault"]
        kill(pool, 0)
        death = final_info(pool.step([1, 1]), 0)["fault"]
    for original in (fault, death):
        copy = pickle.loads(pickle.dumps(original))
        assert isinstance(copy, Fault)
        assert (copy, str(copy)) == (original, str(original))
        assert type(copy.error) is type(original.error)


def test_a_format_may_name_worker_and_env_in_every_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records that concern no worker or env, such as that of the last crash record, also have these fields."""
    crash_dir = CrashDir(tmp_path, max_files=1)
    env_fns = hooked(1, which=[0], step=BROKEN)
    with begun(env_fns, backend="serial", crash_dir=crash_dir) as pool, pytest.raises(EnvError):
        pool.step([0])
    (record,) = caplog.records
    line = logging.Formatter("[%(worker)s %(env)s] %(message)s").format(record)
    assert line.startswith("[None None] ") and "max_files=1" in line


def test_the_log_record_of_a_fault_precedes_its_row_even_if_recv_does_not_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with begun(hooked(2, [1], step=die), num_workers=2, faults="restart") as pool:
        pool.send([0, 0])
        rows = 0
        while rows < 2:
            rows += len(pool.recv(timeout=0))
        assert len([record for record in caplog.records if record.name == "remuda"]) == 1


def test_deaths_and_exceptions_are_raised_together_deaths_first() -> None:
    with begun(hooked(4, [0, 3], step=BROKEN)) as pool:
        for worker in (1, 2):
            kill(pool, worker)
        pool.send([0] * 4)
        pool.call("pid", env_ids=[0, 3])  # they have failed before they answer
        with pytest.raises(WorkerDiedError) as raised:
            pool.recv()
    second, raising = raised.value.others
    assert (raised.value.env_ids, second.env_ids, raising.env_ids) == ((1,), (2,), (0, 3))
    assert isinstance(second, WorkerDiedError) and isinstance(raising, EnvError)
    assert f"; and {second}; and {raising}" in str(raised.value)


# -- references ------------------------------------------------------------------------------------------


def _exception(pool: Pool) -> None:
    raise fault_in(pool.step([1, 1]), 1).error


@each(fault=[lambda pool: pool.call("poke"), lambda pool: (kill(pool, 1), pool.call("poke")), _exception], mode=MODES)
def test_an_error_whose_fault_the_pool_keeps_does_not_keep_the_pool(fault: Any, mode: Any) -> None:
    def raise_and_drop() -> weakref.ref[Pool]:
        faults = FaultPolicy("restart", backoff=0)
        pool = begun(hooked(2, step=raise_value_error, call=kill_myself), faults=faults, autoreset=mode)
        with suppress(WorkerDiedError, EnvError):
            try:
                fault(pool)
            except BaseException as error:
                kept.append(error)  # its traceback has this frame, and so the pool
                raise
        kept.append(kept)
        return weakref.ref(pool)

    kept: list[Any] = []
    gone = raise_and_drop()
    assert len(kept) == 2
    del kept
    while gone() is not None:  # the supervisor may be handling an event
        gc.collect()
