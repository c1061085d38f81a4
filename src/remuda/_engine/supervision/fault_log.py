"""Logs faults, those that are alike as one: what has happened to which envs, and what follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

from remuda._engine.running.changes import Changes
from remuda._relay.log import logger
from remuda.errors import EnvError, Failure, Fault, WorkerDiedError


class FaultLog:
    """Gathers faults that come up together, and logs those that are alike as one.

    They wait until what they tell of is settled: handlers of logs may raise, and may use the pool.

    Attributes:
        log: Logs faults that are alike; the second argument says what follows. Where the program that should hear of
            them is elsewhere, another function takes its place.
    """

    def __init__(self) -> None:
        self._untold: list[tuple[Fault, str]] = []
        self.log: Callable[[Sequence[Fault], str], None] = log_alike

    def __bool__(self) -> bool:
        return bool(self._untold)

    def add(self, fault: Fault, then: str, changes: Changes) -> None:
        """A fault that is to be told if these changes are made. `then`: what follows."""
        changes.do(self._untold.append, (fault, then))

    def tell(self) -> None:
        """Logs what was added since the last time, each once. What a handler raises is raised; the rest comes later."""
        while self._untold:
            first, then = self._untold[0]
            alike = [fault for fault, its_then in self._untold if (_kind(fault), its_then) == (_kind(first), then)]
            told = {id(fault) for fault in alike}
            self._untold[:] = [(fault, its_then) for fault, its_then in self._untold if id(fault) not in told]
            self.log(alike, then)


def log_alike(alike: Sequence[Fault], then: str) -> None:
    """Logs faults that are alike as one warning. `then`: what follows."""
    reason = next((fault for fault in alike if not fault.shared), alike[0])
    # As text: its error may come to hold the frames of whoever it is raised to, and handlers keep records.
    each = tuple((fault.env_id, fault.worker, str(fault)) for fault in alike)
    extra = {"env": reason.env_id, "worker": reason.worker, "faults": each}
    if reason.shard is not None:
        extra |= {"shard": reason.shard, "node": reason.node}
    where = "" if reason.shard is None else f" (shard {reason.shard}, node {reason.node})"
    text, details = _text(alike)
    logger.warning("%s%s; %s%s", text, where, then, details, extra=extra)


def restart_in_words(at: float) -> str:
    """`at`: when a worker is restarted, of `time.monotonic`."""
    seconds = at - time.monotonic()
    return "it is restarted at once" if seconds <= 0 else f"it is restarted in {max(seconds, 0.01):.2g} s"


def _kind(fault: Fault) -> Hashable:
    if type(fault.error) is not EnvError:
        return id(fault.error)  # one death, which has cost several envs
    return fault.error.failures[0].kind


def _text(alike: Sequence[Fault]) -> tuple[str, str]:
    """The error as text, and the lines below it: what a worker has printed, or was in."""
    errors = {id(fault.error): fault.error for fault in alike}
    failures: list[Failure] = []
    for error in errors.values():
        if isinstance(error, EnvError):
            failures += error.failures
    error = EnvError(failures) if failures else alike[0].error
    details = error.details() if isinstance(error, WorkerDiedError) else ""
    return str(error).removesuffix(details), details
