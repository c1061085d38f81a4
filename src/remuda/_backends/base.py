"""The interface between engine and backends: what a backend must offer, and what the engine knows of a worker."""

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

PATIENCE_SECONDS = 5.0  # with an env that is built and stepped for a trial alone


@dataclass(frozen=True)
class Assignment:
    """The envs that one worker is to build."""

    spec: HostSpec
    env_fns: Sequence[Callable[[], Any]]
    variables: Mapping[str, str] = field(default_factory=dict)  # of the environment, for the worker alone
    computed: tuple[Computed, ...] = ()  # the caller's own columns
    cores: frozenset[int] = frozenset()  # where it is best kept, if it is to be kept to one; empty: anywhere


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
        """As `subprocess` has it: None while it runs, negative for a signal."""

    def is_alive(self) -> bool: ...
    def output(self, limit: int = 65536) -> str:
        """The end of what it, and the workers in its place before it, have written to stdout and stderr.

        Empty with `worker_output="inherit"`. It can still be asked for when the worker is dead or the pool is closed.

        Args:
            limit: How many bytes at most, counted from the end; at most the last 256 KiB are there. What is no UTF-8 is
                replaced.

        Raises:
            TypeError, ValueError: `limit` is not an int from 0 up.
        """

    def output_tail(self) -> str:
        """The last lines that the latest process wrote, for reports of its death."""

    def verdict(self) -> MemoryVerdict | None:
        """Of its end, where that was a SIGKILL."""


def worker_of(workers: Sequence[Worker], env_id: int) -> Worker:
    """The one that hosts an env."""
    return next(worker for worker in workers if env_id in worker.env_ids)


_Death = TypeVar("_Death", bound=RemudaError)


def death_of(worker: Worker, operation: str, where: EnvProgress | None, make: Callable[..., _Death]) -> _Death:
    """The error that tells of a worker's end. `make`: WorkerDiedError, or what takes its arguments."""
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
    """Where envs are being built, as their pool's process sees it. This one is looked at by nobody.

    Attributes:
        board: That workers write on; None: there is none.
    """

    board: BuildBoard | None = None

    def show(self, *, at_once: bool = False) -> float | None:
        """Shows how far it is, if that is due. Returns the seconds until it is to be called again; None: never.

        `at_once`: it may take long until it is called again.
        """
        return None

    def hide(self) -> None:
        """Something else is about to be written, or all is over."""


class Backend(Protocol):
    """Runs workers. Used by one thread at a time, in this order: `build`, `attach`, the rest, `stop`."""

    @property
    def workers(self) -> Sequence[Worker]: ...
    @property
    def processes(self) -> Processes | None:
        """None where workers are threads, or the caller."""

    def build(self, assignments: Sequence[Assignment], timeout: float | None, progress: BuildProgress) -> list[Reports]:
        """Starts the workers, which build their envs; returns their reports. The first may have been started.

        `progress` is asked to show how far they are while this goes on, and hidden at its end.

        Raises EnvError, WorkerDiedError, StartTimeoutError or ResourceError; then nothing is left behind.
        """

    def build_first(
        self, assignments: Sequence[Assignment], timeout: float | None, limits: Limits, progress: BuildProgress
    ) -> SecondBuild:
        """Starts the first worker alone, with its one env, and has it try whether that can be built a second time.

        If it `stays`, `build` goes on with the others. Raises as that does.
        """

    def attach(self, layout: Layout, arena: _core.Arena) -> None:
        """Starts the workers' loops over this arena."""

    def watch(self, hub: _core.Hub) -> None:
        """Tells the hub which processes to watch, what to listen to, and what to call before it waits, if anything."""

    def queues(self) -> list[Queues]:
        """For each worker of this process, the queues of its messages: to it, and from it. Empty if workers have
        sockets, which the hub is given by `watch` and `join`."""

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Parts:
        """The message that makes a worker build another env for a slot.

        Raises InvalidEnvError when the factory cannot be sent.
        """

    def stop(self, timeout: float) -> None:
        """Ends workers and frees all they hold. `timeout`: seconds for those that are leaving by themselves.

        Raises CloseTimeoutError when some would not die; all else is freed.
        """

    def abandon(self) -> None:
        """`stop` for a pool that was never closed: at garbage collection, or when the interpreter ends."""


class Processes(Protocol):
    """What a backend offers besides where its workers are processes: they can be killed, read and replaced."""

    def drain(self, said: Callable[[], int]) -> None:
        """Hands on what the workers have logged and warned. `said`: returns how many records they have sent so far."""

    def kill(self, worker: int) -> None:
        """Ends a worker at once, with every process that it has started. The hub reports its death later."""

    def last_stack(self, worker: int) -> str:
        """The Python calls that a worker is in, the last first, before it is killed; empty where they cannot be read.

        The worker stops for good.
        """

    def start_replacement(self, worker: int) -> None:
        """Starts a successor, which builds its envs in the background. Does not wait."""

    def is_coming(self, worker: int) -> bool:
        """Whether a successor is being started: until then `poll_successor` has to be called now and then."""

    def descriptors(self, worker: int) -> list[int]:
        """Those that become readable when `poll_successor` may have something to return."""

    def poll_successor(self, worker: int) -> Reports | Failure | None:
        """The report of a successor, or why its envs could not be built; None: it is still at it.

        Raises WorkerDiedError when it died instead, and whatever kept it from being started.
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
        """Successors of the worker build that env for a slot from now on. Harmless when called twice."""
