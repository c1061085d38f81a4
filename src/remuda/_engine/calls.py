"""Calls into envs whose answers come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from remuda._backends.pickling import Parts, load
from remuda._engine.faults import Faults
from remuda.errors import Failure, RemudaError


class Addressee(Protocol):
    """Who waits for the answers to messages."""

    def answer(self, sequence: int, parts: Parts) -> None: ...
    def fail(self, sequence: int, failure: Failure) -> None: ...
    def abandon(self, error: RemudaError) -> None: ...


class Call:
    """The answers of several envs to one call, some of them still to come."""

    def __init__(self, wait: Callable[[Call, float | None], None], faults: Faults) -> None:
        self._order: list[int] = []
        self._answers: dict[int, Parts] = {}
        self._values: list[Any] | None = None  # of the answers, unpickled when they are first asked for
        self._failures: list[Failure] = []
        self.error: RemudaError | None = None
        self._missing: set[int] = set()
        self._wait, self._faults = wait, faults

    @property
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""
        return not self._missing or self.error is not None

    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits for all answers; one for each env, in the order asked.

        Raises:
            TimeoutError: They did not all come within `timeout` seconds. Asking again is allowed.
            EnvError: One or more envs raised.
            WorkerDiedError: A worker that was to answer died.
        """
        self._wait(self, timeout)
        if self.error is not None:
            raise self.error
        if self._missing:
            raise TimeoutError(f"{len(self._missing)} of {len(self._order)} envs have not answered within {timeout} s")
        if self._failures:
            raise self._faults.error_for(self._failures)
        if self._values is None:
            loaded = {sequence: load(answer) for sequence, answer in self._answers.items()}
            self._values = [loaded[sequence] for sequence in self._order]
        return list(self._values)

    # -- the pool's side -------------------------------------------------------------------------------

    def expect(self, sequence: int) -> None:
        """One more env was asked, or once more is the answer of one wanted."""
        self._order.append(sequence)
        self._missing.add(sequence)

    def await_also(self, sequence: int) -> None:
        """One more was asked, whose answer is of no interest unless it is a failure."""
        self._missing.add(sequence)

    def answer(self, sequence: int, parts: Parts) -> None:
        self._missing.discard(sequence)
        self._answers[sequence] = parts

    def fail(self, sequence: int, failure: Failure) -> None:
        self._missing.discard(sequence)
        self._failures.append(failure)

    def answers(self) -> list[Parts]:
        """What has come so far, still pickled."""
        return list(self._answers.values())

    def abandon(self, error: RemudaError) -> None:
        """Some answer will never come."""
        self.error = error


def call_attribute(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`env.name(*args, **kwargs)`, or the attribute itself when it cannot be called; wrappers are looked through."""
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def get_attribute(env: Any, name: str) -> Any:
    return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)


def set_attribute(env: Any, name: str, value: Any) -> None:
    if hasattr(env, "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
    else:
        setattr(env, name, value)
