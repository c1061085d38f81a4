"""Logs faults. Faults that are alike share one log record, which names the envs, the error, and the reaction."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from remuda._relay.log import logger
from remuda.errors import EnvError, Failure, Fault, WorkerDiedError


class FaultLog:
    """Gathers faults until they are logged, and logs those that are alike as one log record.

    The supervisor adds faults while another thread logs some.

    Attributes:
        log: Logs faults that are alike; the second argument is the reaction as text. A shard replaces this function, to
            log in the driver's program.
    """

    def __init__(self) -> None:
        self._unlogged: deque[tuple[Fault, str]] = deque()
        self.log: Callable[[Sequence[Fault], str], None] = log_alike

    def add(self, fault: Fault, then: str) -> None:
        """Keeps a fault, to be logged later. `then`: the reaction, such as "it is rebuilt"."""
        self._unlogged.append((fault, then))

    @property
    def has_any(self) -> bool:
        """Whether some faults are not logged yet."""
        return bool(self._unlogged)

    def log_all(self, after_each: Callable[[], object] = lambda: None) -> None:
        """Logs each kept fault once, and calls `after_each` after each record.

        If a log handler raises, this raises too, and the next call logs the rest.
        """
        while self._unlogged:
            first, then = self._unlogged.popleft()
            alike = [first]
            for _ in range(len(self._unlogged)):
                entry = self._unlogged.popleft()
                if (_kind(entry[0]), entry[1]) == (_kind(first), then):
                    alike.append(entry[0])
                else:
                    self._unlogged.append(entry)
            self.log(alike, then)
            after_each()


def log_alike(alike: Sequence[Fault], then: str) -> None:
    """Logs faults that are alike as one warning. `then`: the reaction, such as "it is rebuilt"."""
    reason = next((fault for fault in alike if not fault.shared), alike[0])
    # The log record has texts instead of errors: handlers may keep it, and errors may refer to the caller's frames.
    each = tuple((fault.env_id, fault.worker, str(fault)) for fault in alike)
    extra = {"env": reason.env_id, "worker": reason.worker, "faults": each}
    if reason.shard is not None:
        extra |= {"shard": reason.shard, "node": reason.node}
    where = "" if reason.shard is None else f" (shard {reason.shard}, node {reason.node})"
    text, details = _text(alike)
    logger.warning("%s%s; %s%s", text, where, then, details, extra=extra)


def restart_in_words(at: float) -> str:
    """Returns a text on when a worker is restarted. `at`: the time of the restart, of `time.monotonic`."""
    seconds = at - time.monotonic()
    return "it is restarted at once" if seconds <= 0 else f"it is restarted in {max(seconds, 0.01):.2g} s"


def _kind(fault: Fault) -> Hashable:
    if type(fault.error) is not EnvError:
        return id(fault.error)  # all envs lost by one death share one error
    return fault.error.failures[0].kind


def _text(alike: Sequence[Fault]) -> tuple[str, str]:
    """Returns (text, details) of one error for faults that are alike. `details`: the worker's last output or stack."""
    errors = {id(fault.error): fault.error for fault in alike}
    failures: list[Failure] = []
    for error in errors.values():
        if isinstance(error, EnvError):
            failures += error.failures
    error = EnvError(failures) if failures else alike[0].error
    return (error.summary(), error.details()) if isinstance(error, WorkerDiedError) else (str(error), "")
