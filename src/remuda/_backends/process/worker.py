"""A worker, as `Pool.workers` shows it: first one process, and later its successors."""

from __future__ import annotations

import signal
from functools import partial

from remuda._backends.process.os_process import WorkerProcess, reap
from remuda._relay.output import Output
from remuda._relay.stacks import stack_of
from remuda._system.oom import OomWatch
from remuda._system.own_thread import run_apart
from remuda._wire.channel import SocketChannel
from remuda._worker.main import WorkerConfig
from remuda.errors import MemoryVerdict, StartTimeoutError, WorkerDiedError


class ProcessWorker:
    """A worker that has a process of its own, and gets another one if it is replaced."""

    cause_of_death = WorkerDiedError

    def __init__(self, config: WorkerConfig, output: Output, siblings: list[WorkerProcess], oom: OomWatch):
        """`siblings`: all processes of the pool that are not released, or have left processes behind."""
        self.index, self.env_ids, self.name = config.spec.info.index, config.spec.info.env_ids, config.identity.name
        self.process: WorkerProcess | None = None  # the latest process
        self.build_seconds = 0.0  # the seconds in which the first process has built the envs
        self._output = output
        self._siblings, self._oom = siblings, oom
        self._verdict: MemoryVerdict | None = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def exitcode(self) -> int | None:
        process = self.process
        if process is None:
            return None
        if not process.ended and process.wait(0):
            # Reaps all ended workers, because one search finds the descendants of all.
            run_apart(partial(reap, self._siblings), lambda: None)
        return process.exitcode

    @property
    def channel(self) -> SocketChannel:
        assert self.process is not None  # callers use the channel only after the start
        return self.process.channel

    def is_alive(self) -> bool:
        return self.process is not None and not self.process.wait(0)

    def take_over(self, process: WorkerProcess) -> None:
        """Replaces the worker's process."""
        self._siblings.append(process)
        self.process, self._verdict = process, None

    def release(self) -> None:
        """Frees what remains of the worker's process before the next one starts."""
        if self.process is None:
            return
        self.process.release()
        # A process that runs or has left descendants stays in the list, because closing the pool waits for all of them.
        if self.process.wait(0) and not self.process.has_survivors and self.process in self._siblings:
            self._siblings.remove(self.process)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill_group()

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


def start_timeout(late: list[ProcessWorker], timeout: float | None) -> StartTimeoutError:
    """Returns the error for workers that have not built their envs in time."""
    envs = [env_id for worker in late for env_id in worker.env_ids]
    expected = f"expected every env to be built within start_timeout={timeout} s, got no answer for the envs {envs} "
    workers = f"(workers {[worker.index for worker in late]}); "
    if late[0].process is None:
        return StartTimeoutError(
            f"{expected}{workers}the process that forks workers did not even start them: a fork server may still be "
            "importing the modules in preload=[...]; give it more time"
        )
    text = f"{expected}{workers}give it more time, or preload=[...] the modules they import"
    stack = stack_of(late[0].process.pid).splitlines()
    while stack and "/remuda/_worker/" in stack[-1]:
        stack.pop()  # remuda's own frames, which called the factory
    if stack:
        text += f"\n  worker {late[0].index} was in, the last call first:\n    " + "\n    ".join(stack)
    return StartTimeoutError(text)
