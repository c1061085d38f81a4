"""Calls of functions in envs, with answers that arrive later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium import Env

from remuda._wire.pickling import Buffers
from remuda._wire.requests import reading, reading_if
from remuda.errors import Failure, RemudaError


class Addressee(Protocol):
    """The receiver of the answer to a message. The supervisor calls one of the methods, once."""

    def answer(self, sequence: int, parts: Buffers) -> None: ...
    def fail(self, sequence: int, failure: Failure) -> None: ...
    def abandon(self, error: RemudaError) -> None: ...


@dataclass(frozen=True)
class Noting:
    """Calls `note` when an answer arrives, and passes all that it receives on to `addressee`."""

    addressee: Addressee
    note: Callable[[], object]

    def answer(self, sequence: int, parts: Buffers) -> None:
        self.note()
        self.addressee.answer(sequence, parts)

    def fail(self, sequence: int, failure: Failure) -> None:
        self.addressee.fail(sequence, failure)

    def abandon(self, error: RemudaError) -> None:
        self.addressee.abandon(error)


@dataclass(frozen=True)
class OnlyFailures:
    """Passes failures on, and drops answers. Drops errors too: the death of a worker is handled as a fault."""

    then: Callable[[Failure], object]

    def answer(self, sequence: int, parts: Buffers) -> None: ...

    def fail(self, sequence: int, failure: Failure) -> None:
        self.then(failure)

    def abandon(self, error: RemudaError) -> None: ...


class Call(ABC):
    """The answers of several envs to one call, some of which arrive later. `Pool.call_async` returns it.

        call = pool.call_async("save", path)  # the envs carry it out while you continue
        ...
        saved = call.result(timeout=5)  # one answer for each env

    Envs may be stepped meanwhile: each env answers between two steps, in the order of the calls. A call is carried out
    even if `result` is never called, but then an exception of an env is not reported.

    Attributes:
        error: The RemudaError because of which an answer will never arrive; None if all may still arrive.
    """

    error: RemudaError | None = None

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits until all answers have arrived, and returns them. A second call of `result` returns them at once.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Returns:
            One value for each env, in the order of the call's `env_ids`: unpickled copies of what the envs returned.
            Each call returns a new list of the same values.

        Raises:
            TypeError: `timeout` is not a number.
            TimeoutError: Not all answers arrived within `timeout` seconds. `result` may be called again.
            EnvError: One or more envs raised.
            WorkerDiedError: A worker died before it answered. (EnvTimeoutError, for a missed `call_timeout`, is a
                subclass.)
            ClosedError: The pool was closed before all answers had arrived.
        """


def _is_value(env: Any, name: str, *_: Any) -> bool:
    return not callable(get_attribute(env, name))


@reading_if(_is_value)
def call_attribute(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns `env.name(*args, **kwargs)`, or `env.name` if it cannot be called. Looks through wrappers."""
    attribute = get_attribute(env, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


@reading
def get_attribute(env: Any, name: str) -> Any:
    return env.get_wrapper_attr(name) if hasattr(env, "get_wrapper_attr") else getattr(env, name)


def set_attribute(env: Any, name: str, value: Any) -> None:
    # Gymnasium 0.29 does not have `set_wrapper_attr`, and its wrappers warn if they are asked for it.
    if hasattr(type(env) if isinstance(env, Env) else env, "set_wrapper_attr"):
        env.set_wrapper_attr(name, value)
    else:
        setattr(env, name, value)
