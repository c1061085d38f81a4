"""What an env that is called, and not stepped by the engine, has been asked: for reports of its faults."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from remuda import Call, EnvProgress, RemudaError
from remuda._faces.episode_counter import EpisodeCounter
from remuda.alf.worker import LAST


class _RecentCall(NamedTuple):
    operation: str
    call: Call
    where: EnvProgress


class RecentCalls:
    """The calls of one env, which come to it one after another, and how far each of them finds it."""

    def __init__(self) -> None:
        self._open: deque[_RecentCall] = deque()
        self._counter = EpisodeCounter()
        self._last_step: Call | None = None

    def add(self, operation: str, call: Call) -> None:
        """`operation`: "build", "reset", "step" or "call"."""
        while self._open and self._open[0].call.done:
            self._open.popleft()
        if operation == "step" and self._is_over():
            operation = "reset"  # ALF's envs reset when they are stepped after the end of an episode
        if operation == "reset":
            self._counter.reset()
        elif operation == "step":
            self._counter.step()
        if operation in ("reset", "step"):
            self._last_step = call
        self._open.append(_RecentCall(operation, call, self._counter.where(0)))

    def operation_of(self, operation: str, where: EnvProgress) -> tuple[str, EnvProgress]:
        """Of the env: the first call that has no answer. `operation`: the pool's word for it."""
        if operation != "call":
            return operation, self._counter.where(where.env_id)
        now = next((one for one in self._open if not one.call.done), None)
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
