"""Exceptions that run code while they are unpickled in the pool's process, and signal handlers that raise meanwhile."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remuda._wire.failures import load_exception
from remuda._wire.pickling import load_from_env

_on_arrival: list[Callable[[], Any]] = []


class Broken(Exception):
    """Runs the next function of `_on_arrival` when it is unpickled, and the last one repeatedly."""

    def __reduce__(self) -> Any:
        return arrive, ()


def arrive() -> Broken:
    (_on_arrival.pop(0) if len(_on_arrival) > 1 else _on_arrival[0])()
    return Broken()


def raising(kind: type[BaseException]) -> Callable[..., None]:
    def handler(*_: Any) -> None:
        raise kind("told")

    return handler


@pytest.fixture
def handled() -> Iterator[Callable[[type[BaseException]], None]]:
    """Returns a function that installs a raising handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda kind: signal.signal(signal.SIGUSR1, raising(kind)) and None
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "load", [lambda pickled: load_exception("", pickled), lambda pickled: load_from_env([pickled])]
)
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, TimeoutError])
def test_an_exception_of_a_signal_handler_is_raised(kind: Any, load: Any, handled: Any) -> None:
    handled(kind)
    _on_arrival[:] = [lambda: signal.raise_signal(signal.SIGUSR1), lambda: None]
    pickled = pickle.dumps(Broken())
    with pytest.raises(kind, match="told"):
        load(pickled)
    assert type(load(pickled)) is Broken


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, ValueError])
def test_an_exception_that_raises_when_unpickled_has_no_object(kind: Any) -> None:
    _on_arrival[:] = [raising(kind)]
    pickled = pickle.dumps(Broken())
    assert load_exception("", pickled) is None
    with pytest.raises(ValueError if kind is ValueError else pickle.UnpicklingError, match="told|raised"):
        load_from_env([pickled])


def test_an_exception_with_a_raising_class_property_has_no_object(handled: Any) -> None:
    handled(SystemExit)
    actions = iter([lambda: signal.raise_signal(signal.SIGUSR1), *[lambda: None] * 9])
    _Shy.ask = staticmethod(lambda: next(actions)())
    with pytest.raises(SystemExit):
        load_exception("", pickle.dumps(_Shy()))
    _Shy.ask = staticmethod(raising(SystemExit))
    assert load_exception("", pickle.dumps(_Shy())) is None


class _Shy(Exception):
    ask: Any = staticmethod(lambda: None)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        self.ask()
        return _Shy

    def __reduce__(self) -> Any:
        return _Shy, ()
