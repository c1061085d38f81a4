"""Calls into envs whose answers come later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from remuda._engine.running.changes import Changes
from remuda._wire.pickling import Parts
from remuda.errors import Failure, RemudaError


class Addressee(Protocol):
    """Who waits for the answers to messages. He may be told the same thing twice, see `Changes`."""

    def answer(self, sequence: int, parts: Parts) -> None: ...
    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None: ...
    def abandon(self, error: RemudaError) -> None: ...


class Call(ABC):
    """The answers of several envs to one call, some of them still to come: what `Pool.call_async` returns.

        call = pool.call_async("save", path)  # the envs are at it while you go on
        ...
        saved = call.result(timeout=5)        # one answer for each env

    Envs may be stepped meanwhile: each answers between two steps, in the order in which it was asked. A call whose
    result nobody asks for is carried out all the same, but what an env raises in it is then never told.

    Attributes:
        error: The RemudaError by which some answer will never come; None while all may still do.
    """

    error: RemudaError | None = None

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits for all answers. May be asked again, and then returns the same values at once.

        Args:
            timeout: Seconds to wait at most; None for as long as it takes.

        Returns:
            One value for each env, in the order of the `env_ids` that were asked: unpickled copies of what the envs
            have returned. The list is a new one each time, the values are not.

        Raises:
            TypeError: A `timeout` that is no number.
            TimeoutError: They did not all come within `timeout` seconds. Asking again is allowed.
            EnvError: One or more envs raised.
            WorkerDiedError: A worker that was to answer died. (EnvTimeoutError, for a missed `call_timeout`, is one of
                its kinds.)
            ClosedError: The pool was closed before all answers had come.
        """


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
