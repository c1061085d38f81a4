"""A worker process, as its pool's user sees it: the same worker, whichever process serves it, now or next."""

from __future__ import annotations

import signal
from contextlib import suppress

from remuda._backends.process.start_methods import Launching, abandon
from remuda._backends.process.worker_process import WorkerProcess, reap
from remuda._relay.output import Output
from remuda._system.oom import OomWatch
from remuda._wire.channel import SocketChannel
from remuda._worker.main import WorkerConfig
from remuda.errors import MemoryVerdict


class ProcessWorker:
    """A worker process, as its pool's user sees it."""

    def __init__(
        self, order: WorkerConfig, launching: Launching, output: Output, siblings: list[WorkerProcess], oom: OomWatch
    ):
        self.index, self.env_ids, self.name = order.spec.info.index, order.spec.info.env_ids, order.name
        self.process: WorkerProcess | None = None  # the latest that has been started
        self.launching: Launching | None = launching  # the next one
        self._output = output
        self._siblings, self._oom = siblings, oom
        self._verdict: MemoryVerdict | None = None

    @property
    def pid(self) -> int | None:
        self._look()
        return None if self.process is None else self.process.pid

    @property
    def exitcode(self) -> int | None:
        if self.process is None:
            return None
        if not self.process.ended:
            reap(self._siblings)  # where many end together, one look for what they have left does for all
        return self.process.exitcode()

    @property
    def channel(self) -> SocketChannel:
        assert self.process is not None  # whom we talk to has been started
        return self.process.channel

    def is_alive(self) -> bool:
        self._look()
        return self.process is not None and not self.process.wait(0)

    def _look(self) -> None:
        """Whoever asks for the process is told of the new one as soon as there is one."""
        with suppress(Exception):  # the start is tried again, and fails again, where somebody waits for it
            self.has_arrived()

    def has_arrived(self) -> bool:
        """Whether the process that is to be this worker has been started. Waits for nobody; raises as `poll` does."""
        if self.launching is not None and (process := self.launching.poll()) is not None:
            self._take_over(process)
            self.launching = None
        return self.launching is None

    def _take_over(self, process: WorkerProcess) -> None:
        """Where it is interrupted it is done anew: it lets go of the one before first."""
        if self.process is not None and self.process is not process:
            self._let_go(self.process)
        self.process, self._verdict = process, None

    def _let_go(self, process: WorkerProcess) -> None:
        process.release()
        # The end of the pool waits for one that will not die, too, and for what it has started.
        if process.wait(0) and not process.has_survivors and process in self._siblings:
            self._siblings.remove(process)

    def kill(self) -> None:
        if self.launching is not None and self.launching.process is not None:
            self.has_arrived()  # an interrupt came in between
        if self.process is not None:
            self.process.kill_group()
        if self.launching is not None:
            abandon([self.launching])
            self.launching = None

    def verdict(self) -> MemoryVerdict | None:
        if self._verdict is None and self.exitcode == -signal.SIGKILL:
            self._verdict = self._oom.judge()
        return self._verdict

    def output(self, limit: int = 65536) -> str:
        return self._output.read(limit)

    def output_tail(self) -> str:
        return self._output.output_tail()

    def __repr__(self) -> str:
        return f"<{self.name} pid={self.pid} envs={list(self.env_ids)}>"
