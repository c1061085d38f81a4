"""The answers of envs to one call, gathered as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda._engine.calls import Call
from remuda._engine.options.checks import check_timeout
from remuda._engine.supervision.faults import Faults
from remuda._wire.failures import not_loaded
from remuda._wire.pickling import Buffers, load
from remuda.errors import EnvError, Failure, RemudaError


class Answers(Call):
    """A `Call` that `Exchange` returns. As an `Addressee` it receives the answers to the messages of the call."""

    def __init__(self, wait: Callable[[Answers, float | None], None], faults: Faults) -> None:
        """`wait`: a function that waits for a call's answers, at most for the given number of seconds."""
        self._order: list[int] = []
        self._targets: dict[int, tuple[int | None, int]] = {}  # (env, worker) of each message, by its number
        self._answers: dict[int, Buffers] = {}
        self._values: list[Any] | None = None  # the unpickled answers; None before the first `result`
        self._failures: dict[int, Failure] = {}
        self.error: RemudaError | None = None
        self._missing: set[int] = set()
        self._wait, self._faults = wait, faults

    @property
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""
        return not self._missing or self.error is not None

    def wait(self, timeout: float | None) -> None:
        """Waits until all answers have arrived, for at most `timeout` seconds."""
        self._wait(self, timeout)

    @property
    def missing(self) -> set[int]:
        """The envs whose answers have not arrived, but not the workers."""
        return {env for sequence in self._missing if (env := self._targets[sequence][0]) is not None}

    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits until all answers have arrived, and returns or raises as `Call.result` does."""
        check_timeout(timeout)
        self._wait(self, timeout)
        if self.error is not None:
            raise self._faults.shown(self.error)
        if self._missing:
            raise TimeoutError(f"{len(self._missing)} of {len(self._order)} envs have not answered within {timeout} s")
        if self._failures:
            raise self._faults.shown(self._faults.error_for(list(self._failures.values())))
        if self._values is None:
            self._values = self._load_all()
        return list(self._values)

    def _load_all(self) -> list[Any]:
        values, failures = [], []
        for sequence in self._order:
            try:
                values.append(load(self._answers[sequence]))
            except Exception as error:
                env_id, worker = self._targets[sequence]
                failures.append(not_loaded(env_id, worker, "call", "an answer", error))
        if failures:
            raise self._faults.shown(EnvError(failures))
        return values

    def expect(self, sequence: int, env_id: int | None, worker: int) -> None:
        """Makes `result` wait for the answer to the message `sequence` and return it.

        `env_id`: None if the message is for the whole worker.
        """
        self._order.append(sequence)
        self._targets[sequence] = env_id, worker
        self._missing.add(sequence)

    def answer(self, sequence: int, parts: Buffers) -> None:
        """Keeps the answer to the message `sequence` for `result`."""
        self._answers[sequence] = parts
        self._missing.discard(sequence)

    def fail(self, sequence: int, failure: Failure) -> None:
        """Keeps the failure that answers the message `sequence`. `result` will raise it."""
        self._failures[sequence] = failure
        self._missing.discard(sequence)

    def abandon(self, error: RemudaError) -> None:
        """Ends the call with an error, because some answer will never arrive."""
        self.error = error

    @property
    def failures(self) -> list[Failure]:
        """The failures that have arrived so far."""
        return list(self._failures.values())

    def so_far(self) -> list[Buffers]:
        """Returns the answers that have arrived so far, still pickled."""
        return list(self._answers.values())
