"""The interface between the engine and backends: the methods of a backend and of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

from remuda import _core
from remuda._backends.waiting import Flag
from remuda._wire.computed import Computed
from remuda._wire.failures import Interrupts
from remuda._wire.info_columns import InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers
from remuda._worker.env_report import Reports
from remuda._worker.reset_defaults import ResetDefaults
from remuda._worker.worker_info import HostSpec
from remuda.errors import EnvProgress, EnvTimeoutError, MemoryVerdict, RemudaError

Queues: TypeAlias = "tuple[SimpleQueue[Buffers], SimpleQueue[Buffers]]"

PATIENCE_SECONDS = 5.0  # the most seconds for the check that builds an env a second time


@dataclass(frozen=True)
class Assignment:
    """The envs that one worker must build."""

    spec: HostSpec
    env_fns: Sequence[Callable[[], Any]]
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables for this worker.
    computed: tuple[Computed, ...] = ()  # columns of values that the caller's functions compute.
    cores: frozenset[int] = frozenset()  # the best cores to pin the worker to; empty: any core


class Worker(Protocol):
    """A worker, as `Pool.workers` shows it."""

    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def env_ids(self) -> tuple[int, ...]: ...
    @property
    def pid(self) -> int | None:
        """The worker's process id; None for a worker without a process of its own."""

    @property
    def exitcode(self) -> int | None:
        """The worker's exit code, as in `subprocess`: None while it runs, negative for a signal."""

    @property
    def cause_of_death(self) -> Callable[..., RemudaError]:
        """A function that makes the error for the worker's death from the arguments of `WorkerDiedError`."""

    def is_alive(self) -> bool: ...
    def output(self, limit: int = 65536) -> str:
        """Returns the end of the stdout and stderr of this worker and its predecessors.

        Empty with `worker_output="inherit"`. Also works after the worker has died and after the pool is closed.

        Args:
            limit: The largest number of bytes, counted from the end; only the last 256 KiB are kept. Bytes that are not
                UTF-8 are replaced.

        Raises:
            TypeError, ValueError: `limit` is not an int >= 0.
        """

    def output_tail(self) -> str:
        """Returns the last lines that the worker's latest process wrote, for reports of its death."""

    def verdict(self) -> MemoryVerdict | None:
        """Returns whether the kernel killed the worker for lack of memory; None if no SIGKILL ended it."""


def worker_of(workers: Sequence[Worker], env_id: int) -> Worker:
    """Returns the worker that hosts an env."""
    return next(worker for worker in workers if env_id in worker.env_ids)


_Death = TypeVar("_Death", bound=RemudaError)


def death_of(worker: Worker, operation: str, where: EnvProgress | None, make: Callable[..., _Death]) -> _Death:
    """Returns the error for a worker's death. `make`: WorkerDiedError, or a class with the same arguments."""
    return make(
        worker=worker.index,
        pid=worker.pid,
        exitcode=worker.exitcode,
        env_ids=worker.env_ids,
        operation=operation,
        verdict=worker.verdict(),
        output=worker.output_tail(),
        where=where,
    )


class Backend(Protocol):
    """Runs workers that have built their envs. One thread at a time calls its methods: first `attach`, last `stop`."""

    @property
    def workers(self) -> Sequence[Worker]: ...
    @property
    def processes(self) -> Processes | None:
        """The backend's methods for worker processes; None if the workers run in this process."""

    @property
    def threads(self) -> Threads | None:
        """The backend's methods for workers that are threads; None for other workers."""

    @property
    def interrupts(self) -> Interrupts:
        """The exceptions that signal handlers have raised in envs, if the caller's thread runs the envs."""

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        """Starts the workers' loops with this arena. `defaults`: the envs' reset defaults, kept after a resize."""

    def watch(self, hub: _core.Hub) -> None:
        """Gives the hub the processes and sockets to watch, or a function that the hub calls before it waits."""

    def queues(self) -> list[Queues]:
        """Returns two queues for each worker in this process: one for messages to it, one for messages from it.

        Empty if workers have sockets, which the hub gets from `watch` and `join`.
        """

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Buffers:
        """Returns the message that makes a worker build another env for a slot.

        Raises InvalidEnvError if the factory cannot be sent.
        """

    def stop(self, timeout: float) -> None:
        """Ends the workers and frees their resources. `timeout`: seconds for workers to end by themselves.

        Raises CloseTimeoutError if some did not end; everything else is freed.
        """

    def abandon(self) -> None:
        """Stops the workers of a pool that was never closed: at garbage collection, or at the interpreter's exit."""


class BuildingBackend(Backend, Protocol):
    """Starts workers on this machine, and runs them. One thread at a time calls its methods, `build` before others."""

    def build(self, assignments: Sequence[Assignment], timeout: float | None) -> list[Reports]:
        """Starts the workers, except the first one if it has been started. Returns the reports of their envs.

        Shows the progress meanwhile. `timeout`: seconds for building all envs.

        Raises EnvError, WorkerDiedError, StartTimeoutError or ResourceError, after it has ended all workers.
        """


class Threads(Protocol):
    """The further methods of a backend with workers that are threads, which cannot be killed."""

    def stack(self, worker: int) -> str:
        """Returns the Python stack of a worker's thread, the last call first; empty if it cannot be read."""

    def relieve(self, worker: int, task: int, error: EnvTimeoutError) -> None:
        """Starts a thread that continues the worker's loop, if the worker still hangs in `task`, in code of an env.

        The new thread answers the task's command with `error`. The old thread keeps the env.
        """

    def hung(self, worker: int) -> dict[int, EnvTimeoutError]:
        """Returns the errors of the worker's envs that hang in old threads, by the env's first slot."""


class Processes(Protocol):
    """The further methods of a backend with worker processes, which can be killed, inspected and replaced."""

    def has_records(self) -> bool:
        """Whether there are logs or warnings of workers that were not emitted. Any thread may call this."""

    def drain(self, sent: Callable[[], int], after_each: Callable[[], object] = lambda: None) -> None:
        """Emits the workers' logs and warnings in this process.

        Args:
            sent: Returns how many records they have sent.
            after_each: Called after each record.
        """

    def kill(self, worker: int) -> None:
        """Ends a worker at once, with every process that it has started. The hub reports its death later."""

    def last_stack(self, worker: int) -> str:
        """Stops a worker permanently, before it is killed, and returns its Python stack, the last call first.

        Empty if it cannot be read.
        """

    def start_successor(self, worker: int, timeout: float | None, unwanted: Flag) -> None:
        """Starts the successor of a dead worker, and waits until it has built envs that fit the pool.

        Unpickles nothing of the program. Any thread may call it, for one worker at a time.

        Args:
            worker: The worker, which is dead or was killed.
            timeout: The seconds for building the envs; None: no limit.
            unwanted: If it is set, the successor is killed, and this call raises RemudaError.

        Raises EnvError, StartTimeoutError, WorkerDiedError, and any error that prevented the start.
        """

    def join(
        self,
        worker: int,
        arena: _core.Arena,
        info_columns: Sequence[InfoColumn],
        defaults: ResetDefaults,
    ) -> tuple[int, int]:
        """Starts the loop of a successor that has built its envs; returns its pidfd and its socket, for the hub."""

    def adopt(self, worker: int, slot: int, carried: Buffers) -> None:
        """Makes later successors of the worker build a slot's env with the factory `carried`. May be repeated."""
