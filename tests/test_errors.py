"""Errors: their texts, causes and pickling."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from failing import failure
from odd_exceptions import Falsy

import remuda
from remuda import EnvError, EnvProgress, EnvTimeoutError, Fault, RemoteTraceback, ResourceError, WorkerDiedError
from remuda.errors import PickledException


def test_the_cause_is_the_exception_or_its_text() -> None:
    error = ValueError("wrong")
    assert EnvError([failure(exception=error)]).__cause__ is error
    falsy = Falsy()
    assert EnvError([failure(exception=falsy)]).__cause__ is falsy
    cause = EnvError([failure()]).__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "ValueError: wrong" in str(cause)
    unreadable = failure(exception=PickledException(b"nonsense", "Traceback ..."))
    assert unreadable.exception is None
    assert isinstance(EnvError([unreadable]).__cause__, RemoteTraceback)


class Counted(Exception):
    """Counts how often it is unpickled."""

    times = 0

    def __reduce__(self) -> Any:
        return _count, (*self.args,)


def _count(*args: Any) -> Counted:
    Counted.times += 1
    return Counted(*args)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_exception_is_unpickled_when_it_is_first_read(copied: Callable[[EnvError], EnvError]) -> None:
    Counted.times = 0
    first = EnvError([failure(exception=PickledException(pickle.dumps(Counted("wrong")), "Traceback ..."))])
    error = copied(first)
    (one,) = error.failures
    assert (error.failures, hash(one), repr(one)) == (first.failures, hash(first.failures[0]), repr(first.failures[0]))
    assert Counted.times == 0
    assert isinstance(one.exception, Counted)
    assert (one.exception.args, str(one.exception.__cause__)) == (("wrong",), "\n\nTraceback ...")
    assert error.__cause__ is one.exception is replace(one, env_id=3).exception
    assert Counted.times == 1


def test_a_cause_can_be_replaced() -> None:
    error = EnvError([failure(exception=ValueError("wrong"))])
    error.__cause__ = other = KeyError("other")
    assert error.__cause__ is other
    with pytest.raises(EnvError) as raised:
        raise EnvError([failure(exception=ValueError("wrong"))]) from None
    assert raised.value.__cause__ is None


def test_every_error_can_be_pickled() -> None:
    died = WorkerDiedError(worker=1, pid=9, exitcode=-9, env_ids=(2, 3), operation="step", output="last words")
    late = EnvTimeoutError(worker=1, pid=9, exitcode=-9, env_ids=(2,), operation="reset")
    late.deadline, late.limit = "reset_timeout", 3.0
    fault = Fault(2, 1, "death", "step", EnvProgress(2, 0, 1, None, 1), died)
    shortage = ResourceError(24, "too few")
    others = remuda.CloseTimeoutError(pids=[3], workers=[1]), remuda.StateError("not now")
    for error in (
        died,
        late,
        EnvError([failure()]),
        remuda.RestartLimitError("max_restarts=0", [fault]),
        shortage,
        *others,
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), copy.args) == (str(error), error.args)
        assert set(vars(copy)) == set(vars(error))
    assert pickle.loads(pickle.dumps(shortage)).errno == 24
