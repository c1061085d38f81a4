"""Base of the thread and the serial backend: workers inside the process of the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from remuda._backends.base import Assignment, BuildProgress, Queues
from remuda._relay.output import check_limit
from remuda._wire.channel import LocalChannel
from remuda._wire.failures import build_error, load_failure
from remuda._wire.pickling import Parts, dump
from remuda._worker.build_log import BuildLog
from remuda._worker.env_report import Reports
from remuda._worker.factories import BuildError
from remuda._worker.measuring import read_clocks, spent
from remuda._worker.second_build import FirstBuild, Limits, SecondBuild, try_second_build
from remuda._worker.vector_host import make_host
from remuda.errors import InvalidEnvError


class LocalWorker:
    """A worker without a process of its own."""

    pid = None
    exitcode = None

    def __init__(self, assignment: Assignment) -> None:
        info = assignment.spec.info
        self.index, self.env_ids, self.name = info.index, info.env_ids, f"remuda-{info.index}"
        self.channel = LocalChannel()
        self.host = make_host(assignment.spec, self.channel)
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def verdict(self) -> None:
        return None

    def output(self, limit: int = 0) -> str:
        check_limit(limit)
        return ""  # it is the caller's own

    def output_tail(self) -> str:
        return ""


class LocalBackend:
    """Builds the envs in the calling thread."""

    processes = None

    def __init__(self) -> None:
        self.workers: list[LocalWorker] = []
        self._built: list[Reports] = []  # by worker

    def build_first(
        self, assignments: Sequence[Assignment], timeout: float | None, limits: Limits, progress: BuildProgress
    ) -> SecondBuild:
        begin, modules = read_clocks(), len(sys.modules)
        self.build(assignments[:1], timeout, progress)
        first = FirstBuild(spent(begin, read_clocks()), imported=len(sys.modules) > modules)
        env_fn, (env, *_) = assignments[0].env_fns[0], self.workers[0].host.envs
        return try_second_build(env_fn, env, first, limits, own_process=False)

    def build(self, assignments: Sequence[Assignment], timeout: float | None, progress: BuildProgress) -> list[Reports]:
        for assignment in assignments[len(self.workers) :]:
            self.workers.append(LocalWorker(assignment))
        try:
            self._built += build_locally(self.workers, assignments, len(self._built), progress)
        finally:
            progress.hide()
        return self._built

    def queues(self) -> list[Queues]:
        return [worker.channel.queues for worker in self.workers]

    def carry(self, worker: int, slot: int, env_fn: Callable[[], Any]) -> Parts:
        self.workers[worker].host.offer(slot, env_fn)
        return dump(None)


def build_locally(
    workers: Sequence[LocalWorker],
    assignments: Sequence[Assignment],
    first: int = 0,
    progress: BuildProgress | None = None,
) -> list[Reports]:
    """Builds every env in the calling thread; when one fails, closes those that were built and raises EnvError.

    Args:
        workers, assignments: All of them.
        first: Whose are still to be built; of those before it they are.
        progress: That is told of each.
    """
    log = BuildLog() if progress is None else BuildLog(progress.board, lambda: progress.show(at_once=True))
    try:
        pairs = list(zip(workers, assignments, strict=True))
        reports = [
            worker.host.build(assignment.env_fns, assignment.computed, log) for worker, assignment in pairs[first:]
        ]
        _check_distinct(workers)
    except BuildError as error:
        close_all(workers)
        # Ctrl-C: the envs are built in the caller's thread. (Not `isinstance`, which asks the exception.)
        if error.__cause__ is not None and issubclass(type(error.__cause__), KeyboardInterrupt):
            raise error.__cause__ from None
        raise build_error([load_failure(error.failure)])  # noqa: B904 - it brings its cause with it
    except InvalidEnvError:
        close_all(workers)
        raise
    return reports


def close_all(workers: Sequence[LocalWorker]) -> None:
    for worker in workers:
        worker.host.close_quietly()
        worker.alive = False


def _check_distinct(workers: Sequence[LocalWorker]) -> None:
    """A factory that returns one object over and over gives separate copies to processes, but not here."""
    seen: dict[int, int] = {}
    for worker in workers:
        name = worker.host.name_of_factory
        for slot, env in zip(worker.host.first_slots, worker.host.envs, strict=True):
            if env is not None and (other := seen.setdefault(id(env), slot)) != slot:
                raise InvalidEnvError(
                    f"expected {name(slot)} to build an env of its own, got the same object as {name(other)}"
                )
