"""The calls of an env that have no answer yet, for reports of faults of an env that the engine does not step."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from remuda import Call, EnvProgress, RemudaError
from remuda._faces.episode_counter import EpisodeCounter
from remuda.alf.worker import LAST


class _OpenCall(NamedTuple):
    operation: str
    call: Call
    where: EnvProgress


class OpenCalls:
    """The calls of one env, which come to it one after another, and how far each of them finds it."""

    def __init__(self) -> None:
        self._open: deque[_OpenCall] = deque()
        self._counter = EpisodeCounter()
        self._last_step: Call | None = None

    def add(self, operation: str, call: Call) -> None:
        """`operation`: "build", "reset", "step" or "call"."""
        while self._open and self._open[0].call.done:
            self._open.popleft()
        if operation == "step" and self._is_over():
            operation = "reset"  # ALF's envs reset when they are stepped after the end of an episode
        self._counter.count(operation)
        if operation in ("reset", "step"):
            self._last_step = call
        self._open.append(_OpenCall(operation, call, self._counter.progress(0)))

    def operation_of(self, operation: str, where: EnvProgress) -> tuple[str, EnvProgress]:
        """Of the env: the first call that has no answer. `operation`: the pool's word for it."""
        if operation != "call":
            return operation, self._counter.progress(where.env_id)
        now = next((inquiry for inquiry in self._open if not inquiry.call.done), None)
        return (operation, where) if now is None else (now.operation, now.where)

    def _is_over(self) -> bool:
        """Whether the latest time step is known to be the last one of its episode; of mere leaves that is not known."""
        if self._last_step is None or not self._last_step.done:
            return False
        try:
            time_step = self._last_step.result()[0]
        except RemudaError:
            return False
        return bool(getattr(time_step, "step_type", None) == LAST)
