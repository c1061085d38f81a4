"""The answers of envs to one call, gathered as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda._engine.options.checks import check_timeout
from remuda._engine.running.calls import Call
from remuda._engine.running.changes import Changes
from remuda._engine.supervision.faults import Faults
from remuda._wire.failures import not_loaded
from remuda._wire.pickling import Parts, load_from_env
from remuda.errors import EnvError, Failure, RemudaError


class Answers(Call):
    """The call that `Exchange` makes. It is the `Addressee` of the messages that were sent for it."""

    def __init__(self, wait: Callable[[Answers, float | None], None], faults: Faults) -> None:
        """`wait`: waits for the answers of a call, for the given number of seconds at most."""
        self._order: list[int] = []
        self._targets: dict[int, tuple[int | None, int]] = {}  # env and worker, by sequence
        self._answers: dict[int, Parts] = {}
        self._values: list[Any] | None = None  # the unpickled answers, after the first `result`
        self._failures: dict[int, Failure] = {}
        self.error: RemudaError | None = None
        self._missing: set[int] = set()
        self._wait, self._faults = wait, faults

    @property
    def done(self) -> bool:
        """Whether `result` would return (or raise) without waiting."""
        return not self._missing or self.error is not None

    def wait(self, timeout: float | None) -> None:
        """Waits for all answers, or for `timeout` seconds."""
        self._wait(self, timeout)

    @property
    def num_missing(self) -> int:
        return len(self._missing)

    def result(self, timeout: float | None = None) -> list[Any]:
        """Waits for all answers. See `Call.result`."""
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
                env_id, worker = self._targets[sequence]
                failures.append(not_loaded(env_id, worker, "call", "an answer", error))
        if failures:
            raise EnvError(failures)
        return [loaded[sequence] for sequence in self._order]

    def expect(self, sequence: int, env_id: int | None, worker: int) -> None:
        """Expects the answer of `env_id` (None: of all envs of `worker`) to the message `sequence`."""
        self._order.append(sequence)
        self._targets[sequence] = env_id, worker
        self._missing.add(sequence)

    def await_also(self, sequence: int) -> None:
        """Expects an answer to the message `sequence` that is no value of the result; only its failure counts."""
        self._missing.add(sequence)

    def answer(self, sequence: int, parts: Parts) -> None:
        """Takes the answer to the message `sequence`."""
        self._answers[sequence] = parts
        self._missing.discard(sequence)

    def fail(self, sequence: int, failure: Failure, changes: Changes) -> None:
        """Takes the failure of the message `sequence`."""
        self._failures[sequence] = failure
        self._missing.discard(sequence)

    def abandon(self, error: RemudaError) -> None:
        """Takes the error because of which some answer will never arrive."""
        self.error = error

    @property
    def failures(self) -> list[Failure]:
        """The failures so far."""
        return list(self._failures.values())

    def so_far(self) -> list[Parts]:
        """Returns the answers so far, still pickled."""
        return list(self._answers.values())
