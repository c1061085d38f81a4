"""Calls of functions in envs, with answers that arrive later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from remuda._engine.running.changes import Changes
from remuda._wire.pickling import Parts
from remuda.errors import Failure, RemudaError


class Addressee(Protocol):
    """The receiver of the answer to a message. A method may be called twice with the same arguments, see `Changes`."""

    def answer(self, sequence: int, parts: Parts) -> None: ...
    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None: ...
    def abandon(self, error: RemudaError) -> None: ...


class Call(ABC):
    """The answers of several envs to one call, some of them still to come: what `Pool.call_async` returns.

        call = pool.call_async("save", path)  # the envs are at it while you go on
        ...
        saved = call.result(timeout=5)        # one answer for each env

    Envs may be stepped meanwhile: each answers between two steps, in the order of the calls. A call is carried out even
    if `result` is never called, but then an exception of an env in it is not reported.

    Attributes:
        error: The RemudaError because of which some answer will never arrive; None while all may still arrive.
    """

    error: RemudaError | None = None

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits for all answers. Another call returns the same values at once.

        Args:
            timeout: Seconds to wait at most; None for as long as it takes.

        Returns:
            One value for each env, in the order of the call's `env_ids`: unpickled copies of what the envs returned.
            The list is a new one each time, the values are not.

        Raises:
            TypeError: `timeout` is not a number.
            TimeoutError: Not all answers arrived within `timeout` seconds. `result` may be called again.
            EnvError: One or more envs raised.
            WorkerDiedError: A worker died before it answered. (EnvTimeoutError, for a missed `call_timeout`, is a
                subclass.)
            ClosedError: The pool was closed before all answers had arrived.
        """


def call_attribute(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns `env.name(*args, **kwargs)`, or the attribute if it cannot be called. Looks through wrappers."""
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def get_attribute(env: Any, name: str) -> Any:
    return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)


def set_attribute(env: Any, name: str, value: Any) -> None:
    if hasattr(env, "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
    else:
        setattr(env, name, value)
