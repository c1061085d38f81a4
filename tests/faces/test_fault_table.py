"""For each face, accident and phase: the error or log that the caller receives, and whether the envs stay usable."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import accidents
import pytest
from drawn import MINUTES
from failing import LIMIT
from fault_table import ACCIDENTS, FACES, NEEDS, PHASES, Course, Face, Then, made
from pairs import covering

import remuda
from remuda import BrokenPoolError, FaultPolicy, Pool, RemoteTraceback, RemudaError, WorkerDiedError

# the imitated libraries log exceptions as warnings, and some use deprecated functions
pytestmark = pytest.mark.filterwarnings("ignore")

POLICIES = ("raise", "restart")
ERRORS_OF = {"sb3": "remuda.sb3", "alf": "remuda.alf"}  # the faces with errors of their own
# Each face meets every accident and every phase under both policies, and every kind of accident in every phase. In
# `make soak` it meets every accident in every phase, and every kind in every phase under both policies.
CELLS = covering(
    [
        (policy, face, phase, accident)
        for face in FACES
        for phase in PHASES
        if phase == "build" or phase in FACES[face].courses
        for accident in PHASES[phase]
        for policy in POLICIES
    ],
    lambda cell: cell[1:] if MINUTES else (),
    lambda cell: (*cell[0 if MINUTES else 1 : 3], ACCIDENTS[cell[3]][0]),
    lambda cell: cell[:3],
    lambda cell: (*cell[:2], cell[3]),
)
RAISED, RESTARTED = (
    [(face, phase, accident) for policy, face, phase, accident in CELLS if policy == where and phase != "close"]
    for where in POLICIES
)
IN_CLOSE = [(policy, face, accident) for policy, face, phase, accident in CELLS if phase == "close"]


def table_of(face: str) -> Face:
    pytest.importorskip(NEEDS.get(face, face), reason=f"{face} is not tested in this environment")
    return FACES[face]


def error_class(place: str) -> type[BaseException]:
    module, _, name = place.partition(":")
    found: type[BaseException] = getattr(import_module(module), name)
    return found


def run_course(face: str, phase: str, accident: str, directory: Path, held: list[Any], policy: str = "raise") -> Any:
    """Runs the course of this phase and returns the result of its last call."""
    held.append(made(face, phase, accident, directory, policy))
    courses = FACES[face].courses | (FACES[face].restart_courses if policy == "restart" else {})
    met = courses[phase](held[0])
    return met[-1] if isinstance(met, tuple) else met


def causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while found[-1].__cause__ is not None:
        found.append(found[-1].__cause__)
    return found


@pytest.mark.parametrize(("face", "phase", "accident"), RAISED)
def test_with_the_policy_raise_the_caller_gets_the_error_of_the_table(
    face: str, phase: str, accident: str, tmp_path: Path
) -> None:
    table, held, kind = table_of(face), list[Any](), ACCIDENTS[accident][0]
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the table names the class
        run_course(face, phase, accident, tmp_path, held)
    assert isinstance(raised.value, error_class(table.expected(phase, accident)))
    if phase != "build":
        assert isinstance(raised.value, error_class(table.caught_today.get(kind, "builtins:Exception")))
    assert any(isinstance(cause, (RemudaError, RemoteTraceback)) for cause in causes(raised.value))
    if kind == "exception":
        assert "accidents.py" in str(causes(raised.value)[-1])
    for envs in held:
        if phase != "build" or table.then[kind] == "is closed":
            THEN[table.then[kind]](table.go_on, envs)
        envs.close()


@pytest.mark.parametrize(("face", "phase", "accident"), RESTARTED)
def test_with_the_policy_restart_the_outcome_is_that_of_the_table(
    face: str, phase: str, accident: str, tmp_path: Path
) -> None:
    table, held = table_of(face), list[Any]()
    met = table.met(phase, accident)
    if met == "raised":
        with pytest.raises(error_class(table.expected(phase, accident))):
            run_course(face, phase, accident, tmp_path, held, "restart")
    else:
        last = run_course(face, phase, accident, tmp_path, held, "restart")
        assert (tmp_path / "accident.0").exists()
        assert met == "unseen" or table.was_cut_off(last)
    for envs in held:
        if phase != "build":
            table.go_on(envs)
        envs.close()


@pytest.mark.parametrize("face", ["gymnasium", "sb3", "alf", "pettingzoo"])
def test_too_many_faults_raise_a_restart_limit_error(face: str) -> None:
    table = table_of(face)
    envs = table.make("step", accidents.raise_value_error, FaultPolicy("restart", max_restarts=1, backoff=0), None)
    table.go_on(envs)
    kind: Any = error_class(f"{ERRORS_OF.get(face, 'remuda')}:RestartLimitError")
    with pytest.raises(kind, match="max_restarts=1") as raised:
        table.go_on(envs)
    assert len(raised.value.faults) == 2
    envs.close()


@pytest.mark.parametrize("face", ERRORS_OF)
def test_an_error_has_the_details_of_remudas_error_and_can_be_pickled(face: str) -> None:
    envs = table_of(face).make("step", accidents.kill_myself, FaultPolicy(), None)
    pid = envs.processes[1].pid
    with pytest.raises(WorkerDiedError) as raised:
        FACES[face].courses["step"](envs)
    envs.close()
    found: list[Any] = [raised.value, pickle.loads(pickle.dumps(raised.value))]
    for error in found:
        assert isinstance(error, error_class(f"{ERRORS_OF[face]}:WorkerDiedError"))
        assert (error.worker, error.pid, error.env_ids, error.operation) == (1, pid, (1,), "step")
        assert (error.exitcode, error.where.action) == (-signal.SIGKILL, 5)
        assert "killed by SIGKILL" in str(error)


@pytest.mark.parametrize(
    ("face", "caught"), [("sb3", (EOFError, ConnectionResetError, BrokenPipeError)), ("alf", (RuntimeError,))]
)
def test_errors_are_those_of_remuda_and_of_the_imitated_library(face: str, caught: tuple[type[Exception], ...]) -> None:
    table_of(face)
    module = import_module(f"remuda.{face}")
    for name in ("BrokenPoolError", "CorruptReplyError", "EnvError", "EnvTimeoutError", "RestartLimitError"):
        error = getattr(module, name)
        assert all(issubclass(error, base) for base in (getattr(remuda, name), *caught))
        assert issubclass(error, module.WorkerDiedError) is issubclass(error, WorkerDiedError)


@pytest.mark.parametrize(("policy", "face", "accident"), IN_CLOSE)
def test_an_accident_in_close_closes_the_envs(
    policy: str,
    face: str,
    accident: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In every case the envs are closed afterwards, and a second close does nothing."""
    table, held, kind = table_of(face), list[Any](), ACCIDENTS[accident][0]
    close = Pool.close
    if kind == "hang":  # shortens the wait for the worker, which is several seconds
        monkeypatch.setattr(Pool, "close", lambda pool, timeout=None, terminate=False: close(pool, LIMIT, terminate))
    if table.closing[kind] == "raised":
        with pytest.raises(error_class(table.expected("close", accident))):
            run_course(face, "close", accident, tmp_path, held, policy)
    else:
        run_course(face, "close", accident, tmp_path, held, policy)
    assert (tmp_path / "accident.0").exists()
    text = {"death": "died while", "exception": "raised"}.get(kind, "")
    assert any(text in line for line in caplog.messages) == (table.closing[kind] == "logged")
    caplog.clear()  # the log records refer to the pool
    held[0].close()


def assert_lost(go_on: Course, envs: Any) -> None:
    with pytest.raises(BrokenPoolError) as again:
        go_on(envs)
    assert isinstance(again.value.__cause__, WorkerDiedError)


def assert_closed(go_on: Course, envs: Any) -> None:
    assert envs.closed
    with pytest.raises(AssertionError, match="closed"):
        go_on(envs)


THEN: dict[Then, Callable[[Course, Any], Any]] = {
    "goes on": lambda go_on, envs: go_on(envs),
    "is lost": assert_lost,
    "is closed": assert_closed,
}
