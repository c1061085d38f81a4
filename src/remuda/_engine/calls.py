"""Calls into envs whose answers come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remuda.errors import EnvError, Failure, RemudaError


class Call:
    """The answers of several envs to one call, some of them still to come."""

    def __init__(self, sequences: Sequence[int], wait: Callable[[Call, float | None], None]) -> None:
        self._order = list(sequences)
        self._values: dict[int, Any] = {}
        self._failures: list[Failure] = []
        self._error: RemudaError | None = None
        self._missing = set(sequences)
        self._wait = wait

    @property
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""
        return not self._missing or self._error is not None

    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits for all answers; one for each env, in the order asked.

        Raises:
            TimeoutError: They did not all come within `timeout` seconds. Asking again is allowed.
            EnvError: One or more envs raised.
            WorkerDiedError: A worker that was to answer died.
        """
        self._wait(self, timeout)
        if self._error is not None:
            raise self._error
        if self._missing:
            raise TimeoutError(
                f"{len(self._missing)} of {len(self._order)} envs have not answered within {timeout} s"
            )
        if self._failures:
            raise EnvError(self._failures)
        return [self._values[sequence] for sequence in self._order]

    # -- the pool's side -------------------------------------------------------------------------------

    def answer(self, sequence: int, value: Any) -> None:
        self._missing.discard(sequence)
        self._values[sequence] = value

    def fail(self, sequence: int, failure: Failure) -> None:
        self._missing.discard(sequence)
        self._failures.append(failure)

    def abandon(self, error: RemudaError) -> None:
        """Some answer will never come."""
        self._error = error


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
