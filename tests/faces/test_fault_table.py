"""Each face, each kind of fault, each phase: what the caller is raised, and how the envs can be used then."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fault_table import FACES, KINDS, NEEDS, PHASES, Course, Then, made

from remuda import BrokenPoolError, RemoteTraceback, RemudaError, WorkerDiedError

pytestmark = pytest.mark.filterwarnings("ignore")  # originals log what was raised as warnings; some are old

CELLS = [
    (face, phase, kind)
    for face in FACES
    for phase in PHASES
    if phase == "build" or phase in FACES[face].courses
    for kind in KINDS
]


def named(place: str) -> type[BaseException]:
    module, _, name = place.partition(":")
    found: type[BaseException] = getattr(import_module(module), name)
    return found


def meet(face: str, phase: str, kind: str, directory: Path, held: list[Any]) -> None:
    held.append(made(face, phase, kind, directory))
    FACES[face].courses[phase](held[0])


def causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while found[-1].__cause__ is not None:
        found.append(found[-1].__cause__)
    return found


@pytest.mark.parametrize(("face", "phase", "kind"), CELLS)
def test_what_the_caller_is_raised(face: str, phase: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(face, face), reason=f"{face} is not tested in this environment")
    table, held = FACES[face], list[Any]()
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the table says which
        meet(face, phase, kind, tmp_path, held)
    assert isinstance(raised.value, named(table.expected(phase, kind)))
    if phase != "build":
        assert isinstance(raised.value, named(table.caught_today.get(kind, "builtins:Exception")))
    assert any(isinstance(cause, (RemudaError, RemoteTraceback)) for cause in causes(raised.value))
    if kind == "exception":
        assert "accidents.py" in str(causes(raised.value)[-1])
    for envs in held:
        if phase != "build" or table.then[kind] == "is closed":
            THEN[table.then[kind]](table.go_on, envs)
        envs.close()


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
