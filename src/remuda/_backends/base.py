"""The interface between the engine and backends: the methods of a backend and of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

from remuda import _core
from remuda._wire.build_board import BuildBoard
from remuda._wire.computed import Computed
from remuda._wire.info_columns import InfoColumn
from remuda._wire.layout import Layout
from remuda._wire.pickling import Parts
from remuda._worker.env_report import Reports
from remuda._worker.reset_defaults import ResetDefaults
from remuda._worker.second_build import Limits, SecondBuild
from remuda._worker.worker_info import HostSpec
from remuda.errors import EnvProgress, Failure, MemoryVerdict, RemudaError

Queues: TypeAlias = "tuple[SimpleQueue[Parts], SimpleQueue[Parts]]"

PATIENCE_SECONDS = 5.0  # for building an env that is only measured


@dataclass(frozen=True)
class Assignment:
    """The envs that one worker is to build."""

    spec: HostSpec
    env_fns: Sequence[Callable[[], Any]]
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables for this worker
    computed: tuple[Computed, ...] = ()  # the caller's own columns
    cores: frozenset[int] = frozenset()  # the best cores to pin it to; empty: any core


class Worker(Protocol):
    """A worker as its pool's user sees it."""

    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def env_ids(self) -> tuple[int, ...]: ...
    @property
    def pid(self) -> int | None:
        """Its process id; None for a worker without a process of its own."""

    @property
    def exitcode(self) -> int | None:
        """Its exit code as in `subprocess`: None while it runs, negative for a signal."""

    @property
    def cause_of_death(self) -> Callable[..., RemudaError]:
        """Makes the error for its death from the arguments of `WorkerDiedError`."""

    def is_alive(self) -> bool: ...
    def output(self, limit: int = 65536) -> str:
        """Returns the end of what it, and earlier workers in its place, have written to stdout and stderr.

        Empty with `worker_output="inherit"`. Works after the worker has died and after the pool is closed, too.

        Args:
            limit: How many bytes at most, counted from the end; at most the last 256 KiB are there. What is no UTF-8 is
                replaced.

        Raises:
            TypeError, ValueError: `limit` is not an int from 0 up.
        """

    def output_tail(self) -> str:
        """Returns the last lines that the latest process wrote, for reports of its death."""

    def verdict(self) -> MemoryVerdict | None:
        """Returns whether the kernel ended it for lack of memory; None if it did not end by SIGKILL."""


def worker_of(workers: Sequence[Worker], env_id: int) -> Worker:
    """Returns the worker that hosts an env."""
    return next(worker for worker in workers if env_id in worker.env_ids)


_Death = TypeVar("_Death", bound=RemudaError)


def death_of(worker: Worker, operation: str, where: EnvProgress | None, make: Callable[..., _Death]) -> _Death:
    """Returns the error for a worker's end. `make`: WorkerDiedError, or a class with its arguments."""
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


class BuildProgress:
    """Shows the progress of building envs. This base class shows nothing.

    Attributes:
        board: The board that workers write on; None if there is no board.
    """

    board: BuildBoard | None = None

    def show(self, *, at_once: bool = False) -> float | None:
        """Shows the progress if that is due. Returns the seconds until the next call is due; None: never.

        `at_once`: the next call may come late.
        """
        return None

    def hide(self) -> None:
        """Hides what is shown, at the end or before other output is written."""


class Backend(Protocol):
    """Runs workers. Used by one thread at a time, in this order: `build`, `attach`, the rest, `stop`."""

    @property
    def workers(self) -> Sequence[Worker]: ...
    @property
    def processes(self) -> Processes | None:
        """The methods for worker processes; None if workers are threads or the caller."""

    def build(self, assignments: Sequence[Assignment], timeout: float | None, progress: BuildProgress) -> list[Reports]:
        """Starts the workers, except the first one if `build_first` has started it. Returns the reports of their envs.

        `progress` is shown meanwhile, and hidden at the end.

        Raises EnvError, WorkerDiedError, StartTimeoutError or ResourceError; then nothing is left behind.
        """

    def build_first(
        self, assignments: Sequence[Assignment], timeout: float | None, limits: Limits, progress: BuildProgress
    ) -> SecondBuild:
        """Starts the first worker alone, with its one env, and makes it try whether that env can be built twice.

        If the env `stays`, `build` starts the other workers. Raises as `build` does.
        """

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        """Starts the workers' loops over this arena. `defaults`: those of envs that have succeeded others."""

    def watch(self, hub: _core.Hub) -> None:
        """Gives the hub the processes and sockets to watch, or a function to call before it waits."""

    def queues(self) -> list[Queues]:
        """Returns two queues for each worker in this process, of the messages to it and from it.

        Empty if workers have sockets, which the hub is given by `watch` and `join`.
        """

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Parts:
        """Returns the message that makes a worker build another env for a slot.

        Raises InvalidEnvError if the factory cannot be sent.
        """

    def stop(self, timeout: float) -> None:
        """Ends workers and frees all they hold. `timeout`: seconds for those that are leaving by themselves.

        Raises CloseTimeoutError when some would not die; all else is freed.
        """

    def abandon(self) -> None:
        """Stops the workers of a pool that was never closed: at garbage collection, or at the interpreter's exit."""


class Processes(Protocol):
    """The further methods of a backend whose workers are processes, which can be killed, read and replaced."""

    def drain(self, sent: Callable[[], int]) -> None:
        """Passes on what workers have logged and warned. `sent`: returns the number of records sent so far."""

    def kill(self, worker: int) -> None:
        """Ends a worker at once, with every process that it has started. The hub reports its death later."""

    def last_stack(self, worker: int) -> str:
        """Stops a worker permanently, before it is killed, and returns its Python stack, the last call first.

        Empty if it cannot be read.
        """

    def start_replacement(self, worker: int) -> None:
        """Starts a successor, which builds its envs in the background. Does not wait."""

    def is_coming(self, worker: int) -> bool:
        """Whether a successor is being started. If so, `poll_successor` must be called regularly."""

    def descriptors(self, worker: int) -> list[int]:
        """Returns the descriptors that become readable when `poll_successor` may return something."""

    def poll_successor(self, worker: int) -> Reports | Failure | None:
        """Returns the reports of a successor, or why its envs could not be built; None while it builds them.

        Raises WorkerDiedError if it died instead, and any error that kept it from being started.
        """

    def join(
        self,
        worker: int,
        layout: Layout,
        arena: _core.Arena,
        info_columns: Sequence[InfoColumn],
        defaults: ResetDefaults,
    ) -> tuple[int, int]:
        """Starts the loop of a successor that has built its envs; returns its pidfd and its socket, for the hub."""

    def adopt(self, worker: int, slot: int, carried: Parts) -> None:
        """Makes successors of the worker build that env for a slot from now on. May be called twice."""
