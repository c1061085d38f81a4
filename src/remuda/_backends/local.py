"""Workers in the caller's process: the serial backend, and the base that it shares with the thread backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from remuda import _core
from remuda._backends.base import Assignment, Queues, Threads
from remuda._progress.bar import BuildBar
from remuda._relay.output import check_limit
from remuda._wire.channel import LocalChannel
from remuda._wire.failures import Interrupts, build_error, is_interrupt, load_failure, raised
from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump
from remuda._worker.env_report import BuiltEnvs, Reports
from remuda._worker.factories import BuildError
from remuda._worker.reset_defaults import ResetDefaults
from remuda._worker.vector_host import make_host
from remuda._worker.worker_info import release_unique
from remuda.errors import WorkerDiedError

_Result = TypeVar("_Result")


class LocalWorker:
    """A worker without a process of its own."""

    pid = None
    exitcode = None
    cause_of_death = WorkerDiedError  # it never dies

    def __init__(self, assignment: Assignment, built: BuiltEnvs) -> None:
        """`built`: the envs of all workers."""
        info = assignment.spec.info
        self.index, self.env_ids, self.name = info.index, info.env_ids, f"remuda-{info.index}"
        self.channel = LocalChannel()
        self.host = make_host(assignment.spec, self.channel, built=built)
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def close(self) -> None:
        """Closes the envs that are not closed yet. Call this in their thread."""
        self.host.close_quietly()
        release_unique(self.host.info)
        self.alive = False

    def verdict(self) -> None:
        return None

    def output(self, limit: int = 0) -> str:
        check_limit(limit)
        return ""  # nothing is kept: the worker writes to the caller's own output

    def output_tail(self) -> str:
        return ""


class LocalBackend:
    """Builds the envs one after another, each in the thread that steps and closes it later."""

    processes: None = None
    threads: Threads | None = None
    has_ended = False  # whether the envs are being closed, in their threads

    def __init__(self) -> None:
        self.workers: list[LocalWorker] = []
        self._envs = BuiltEnvs()
        self.interrupts: Interrupts = {}

    def build(self, assignments: Sequence[Assignment], timeout: float | None) -> list[Reports]:
        self.workers += [LocalWorker(assignment, self._envs) for assignment in assignments]
        progress = BuildBar(env for assignment in assignments for env in assignment.spec.first_slots)

        def before_each(env: int) -> None:
            if self.has_ended:
                raise RuntimeError("the start was interrupted, so no more envs are built")
            progress.missing.difference_update(range(env))  # the envs are built in order
            progress.show_builds(at_once=True)

        try:
            with progress:
                return [
                    self.run_in(worker, partial(worker.host.build, one.env_fns, one.computed, before_each))
                    for worker, one in zip(self.workers, assignments, strict=True)
                ]
        except BuildError as error:  # all envs are closed
            self.stop(0)
            # A signal handler may have interrupted a factory here, in the caller's thread.
            if error.__cause__ is not None and is_interrupt(error.__cause__):
                raise error.__cause__ from None
            raise raised(build_error([load_failure(error.failure)]))  # noqa: B904 - it brings its cause with it
        except BaseException:  # a signal handler has raised
            self.abandon()
            raise

    def run_in(self, worker: LocalWorker, work: Callable[[], _Result]) -> _Result:
        """Returns `work()`, which is code of the worker's envs, called in the thread of these envs."""
        raise NotImplementedError

    def stop(self, timeout: float) -> None:
        """Closes the envs; see `Backend.stop`."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Closes the envs; see `Backend.abandon`."""
        raise NotImplementedError

    def queues(self) -> list[Queues]:
        return [worker.channel.queues for worker in self.workers]

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Buffers:
        self.workers[worker].host.offer(slot, env_fn)
        return dump(None)


class SerialBackend(LocalBackend):
    """Builds and steps the envs in the caller's thread, one after another, whenever the caller waits.

    It is for debugging, and the reference for all others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loops: list[_core.WorkerLoop] = []

    def run_in(self, worker: LocalWorker, work: Callable[[], Any]) -> Any:
        return work()

    def attach(self, layout: Layout, arena: _core.Arena, defaults: ResetDefaults) -> None:
        for worker in self.workers:
            worker.host.interrupts = self.interrupts
            self._loops.append(worker.host.start(layout, arena, defaults.for_successor(worker.env_ids)))

    def watch(self, hub: _core.Hub) -> None:
        hub.callbacks.pump = self._pump

    def _pump(self) -> None:
        for loop, worker in zip(self._loops, self.workers, strict=True):
            worker.alive = not loop.run_available()

    def stop(self, timeout: float) -> None:
        for worker in self.workers:
            worker.close()
        self._loops = []

    def abandon(self) -> None:
        self.stop(0)
