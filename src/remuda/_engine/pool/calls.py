"""Calls into envs whose answers come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from remuda._engine.pool.arguments import check_timeout
from remuda._engine.supervision.changes import Changes
from remuda._engine.supervision.faults import Faults
from remuda._wire.failures import not_loaded
from remuda._wire.pickling import Parts, load_from_env
from remuda.errors import EnvError, Failure, RemudaError


class Addressee(Protocol):
    """Who waits for the answers to messages. He may be told the same thing twice, see `Changes`."""

    def answer(self, sequence: int, parts: Parts) -> None: ...
    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None: ...
    def abandon(self, error: RemudaError) -> None: ...


class Call:
    """The answers of several envs to one call, some of them still to come: what `Pool.call_async` returns.

        call = pool.call_async("save", path)  # the envs are at it while you go on
        ...
        saved = call.result(timeout=5)        # one answer for each env

    Envs may be stepped meanwhile: each answers between two steps, in the order in which it was asked. A call whose
    result nobody asks for is carried out all the same, but what an env raises in it is then never told.

    Attributes:
        error: The RemudaError by which some answer will never come; None while all may still do.
    """

    def __init__(self, wait: Callable[[Call, float | None], None], faults: Faults) -> None:
        """`wait`: waits for the answers of a call, at most so many seconds."""
        self._order: list[int] = []
        self._asked: dict[int, tuple[int | None, int]] = {}  # env and worker
        self._answers: dict[int, Parts] = {}
        self._values: list[Any] | None = None  # of the answers, unpickled when they are first asked for
        self._failures: dict[int, Failure] = {}
        self.error: RemudaError | None = None
        self._missing: set[int] = set()
        self._wait, self._faults = wait, faults

    @property
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""
        return not self._missing or self.error is not None

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
        check_timeout(timeout)
        self._wait(self, timeout)
        if self.error is not None:
            raise self.error
        if self._missing:
            raise TimeoutError(f"{len(self._missing)} of {len(self._order)} envs have not answered within {timeout} s")
        if self._failures:
            raise self._faults.error_for(list(self._failures.values()))
        if self._values is None:
            self._values = self._load_all()
        return list(self._values)

    def _load_all(self) -> list[Any]:
        loaded, failures = {}, []
        for sequence, answer in self._answers.items():
            try:
                loaded[sequence] = load_from_env(answer)
            except Exception as error:
                env_id, worker = self._asked[sequence]
                failures.append(not_loaded(env_id, worker, "call", "an answer", error))
        if failures:
            raise EnvError(failures)
        return [loaded[sequence] for sequence in self._order]

    # -- the pool's side -------------------------------------------------------------------------------

    def expect(self, sequence: int, env_id: int | None, worker: int) -> None:
        """For the pool: `env_id` (None: all of `worker`) was asked once more, by the message of this `sequence`."""
        self._order.append(sequence)
        self._asked[sequence] = env_id, worker
        self._missing.add(sequence)

    def await_also(self, sequence: int) -> None:
        """For the pool: one more was asked, by the message of this `sequence`, and only its failure is of interest."""
        self._missing.add(sequence)

    def answer(self, sequence: int, parts: Parts) -> None:
        """For the pool: what was asked by the message of this `sequence` has these `parts` for its answer."""
        self._answers[sequence] = parts
        self._missing.discard(sequence)

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        """For the pool: what was asked by the message of this `sequence` raised, as `failure` says (not `changes`)."""
        self._failures[sequence] = failure
        self._missing.discard(sequence)

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
