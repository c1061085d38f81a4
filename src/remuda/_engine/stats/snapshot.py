"""Snapshots: the figures of a pool at one moment. They are immutable, and two snapshots can be subtracted.

A new figure is a field of one of these classes, and a line in `reading.py`. If it lies in shared memory, it is also a
number in `src/core/shm/figures.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from remuda._engine.stats.durations import Durations

if TYPE_CHECKING:
    from typing_extensions import Self  # `typing` has it since Python 3.11


@dataclass(frozen=True)
class PoolSetup:
    """The options of a pool, and other facts about it, that its figures and verdicts depend on.

    Attributes:
        envs_of_worker: The number of envs of each worker, the spares last.
        backend, autoreset, spares, vector_size: Those of the pool.
        is_chosen: Whether "auto" has chosen the number of workers, or envs that render leave no choice.
        parts: The number of parts of the pool.
        keeps_apart: Whether the options require separate workers for envs: then fewer workers are never suggested.
        is_remote: Whether other machines step the envs: `backend=remuda.Ray(...)`.
        object_bytes: That of the pool; 0: not known.
    """

    envs_of_worker: tuple[int, ...]
    backend: Literal["process", "thread", "serial", "auto"] = "process"
    autoreset: str = "next_step"
    spares: int = 0
    vector_size: int | None = None
    is_chosen: bool = False
    parts: int = 1
    keeps_apart: bool = False
    is_remote: bool = False
    object_bytes: int = 0

    @property
    def num_envs(self) -> int:
        """The number of envs without spares."""
        return sum(self.envs_of_worker) - self.spares

    @property
    def width(self) -> int:
        """The number of envs that one env object has: more than 1 for a vector env."""
        return self.vector_size or 1

    @property
    def num_workers(self) -> int:
        """The number of workers, those of spares included."""
        return len(self.envs_of_worker)


def hosted_ids(envs_of_worker: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the ids of each worker's envs. Envs with neighbouring ids share a worker."""
    starts = accumulate(envs_of_worker, initial=0)
    return [tuple(range(start, start + count)) for start, count in zip(starts, envs_of_worker, strict=False)]


@dataclass(frozen=True, eq=False)
class Record:
    """The base class of records of figures. `later - earlier` is a record of the time between two records."""

    _GROWING: ClassVar[tuple[str, ...]]  # the fields that a difference subtracts; it keeps the others' later values

    def __sub__(self, earlier: Self) -> Self:
        return replace(self, **{name: _growth(getattr(self, name), getattr(earlier, name)) for name in self._GROWING})


def _growth(later: Any, earlier: Any) -> Any:
    """Returns the difference of two `Durations`, or of two numbers, which is at least 0."""
    return later - earlier if isinstance(later, Durations) else max(later - earlier, type(later)())


@dataclass(frozen=True, eq=False)
class EnvStats(Record):
    """The figures of one env.

    Attributes:
        env_id: Its number, as faults name it; with spares it may back any slot.
        worker: The index of the worker that hosts it.
        step: The durations of its steps without resets, in seconds like all durations. Each env of a vector env has
            the durations of the whole vector env.
        reset: The durations of its resets.
        episodes: The number of episodes that have ended, also by a time limit.
        returns: Sums of rewards of its last episodes (15 at most), the latest last.
        lengths: The steps of these episodes.
        faults: The number of its exceptions, deaths and hangs.
    """

    _GROWING = ("step", "reset", "episodes", "faults")

    env_id: int
    worker: int
    step: Durations = Durations()
    reset: Durations = Durations()
    episodes: int = 0
    returns: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    faults: int = 0

    @property
    def steps(self) -> int:
        """The number of the env's steps."""
        return self.step.count

    def __sub__(self, earlier: EnvStats) -> EnvStats:
        between = super().__sub__(earlier)
        older = max(0, len(self.returns) - between.episodes)
        return replace(between, returns=self.returns[older:], lengths=self.lengths[older:])


@dataclass(frozen=True, eq=False)
class WorkerStats(Record):
    """The figures of one worker.

    Attributes:
        index: Its place in `pool.workers`.
        env_ids: The envs that it hosts.
        pid: Its process id; None if it has no process of its own on this machine.
        seconds: Wall time of these figures.
        steps: Rows that it has filled: steps of envs, and resets.
        busy: Seconds of that inside envs.
        cpu: Seconds of CPU time, spinning not counted. The last millisecond may still be missing.
        queued: Seconds in which it was ready to run, and others had the core.
        idle: The durations of its waits for a command.
        restarts: Processes that were started in its place, after faults and to renew envs.
        memory_renewals: The number of times that it grew past `max_worker_memory`, and had to be replaced.
        memory: Bytes of memory that its process and all that it has started take for themselves, swapped out or not:
            what `max_worker_memory` limits. While it is restarted, that of its successor; 0 if there is no process at
            this moment; None if workers have no processes of their own on this machine.
        lost: Seconds in which it served nothing because of faults: from the beginning of what an env failed in until
            the successor of its process serves, or until the env is built again. An outage that lasts counts up to now.
        pickling: Seconds of `busy` and after it in which it pickled and sent what infos have beside columns.
        info_key: The key of infos whose pickled value is the largest; None if nothing was pickled.
        info_bytes: Bytes of that value.
        doing: What it does now: "step", "reset", "call", ..., or "rebuild" while its successor is started and builds
            its envs; None while it waits.
        doing_env: The env of that command; None: no env, or all.
        doing_since: The seconds since it began with that.
    """

    _GROWING = (
        *("seconds", "steps", "busy", "cpu", "queued", "idle", "restarts", "memory_renewals", "lost", "pickling"),
    )

    index: int
    env_ids: tuple[int, ...]
    pid: int | None = None
    seconds: float = 0.0
    steps: int = 0
    busy: float = 0.0
    cpu: float = 0.0
    queued: float = 0.0
    idle: Durations = Durations()
    restarts: int = 0
    memory_renewals: int = 0
    memory: int | None = None
    lost: float = 0.0
    pickling: float = 0.0
    info_key: str | None = None
    info_bytes: int = 0
    doing: str | None = None
    doing_env: int | None = None
    doing_since: float = 0.0

    @property
    def cpu_share(self) -> float:
        """The share of a core that the worker has used; 1.0 is a whole core."""
        return self.cpu / self.seconds if self.seconds > 0 else 0.0

    def __sub__(self, earlier: WorkerStats) -> WorkerStats:
        between = super().__sub__(earlier)
        # The system counts the time in queues for each process, so it begins at 0 for a worker's successor.
        return between if self.pid == earlier.pid else replace(between, queued=self.queued)


@dataclass(frozen=True, eq=False)
class CallerStats(Record):
    """The figures of the pool's caller. They show the use of your program's time.

    Attributes:
        seconds: Wall time since it first sent anything.
        batches: The number of batches that it has received.
        waiting: Seconds of that in which it waited for envs; with `backend="serial"`, in which it stepped them.
        gathering: Seconds in which the pool checked actions and made batches; estimated from one batch in sixteen.
        unpickling: Seconds in which infos without columns were unpickled, because the caller looked at them.
        cpu: Seconds of CPU time of all threads of its process.
        torch_threads: The threads that PyTorch's operators use there; None if PyTorch is not imported, or if another
            process took the snapshot.
    """

    _GROWING = ("seconds", "batches", "waiting", "gathering", "unpickling", "cpu")

    seconds: float = 0.0
    batches: int = 0
    waiting: float = 0.0
    gathering: float = 0.0
    unpickling: float = 0.0
    cpu: float = 0.0
    torch_threads: int | None = None

    @property
    def own(self) -> float:
        """Seconds in the caller's own code, between a batch and the next command: the policy, and all else."""
        return max(0.0, self.seconds - self.waiting - self.gathering - self.unpickling)

    def __sub__(self, earlier: CallerStats) -> CallerStats:
        between = super().__sub__(earlier)
        most = max(0.0, between.seconds - between.waiting)
        return replace(between, gathering=min(between.gathering, most))  # an estimate


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The figures of a pool, and sums over its envs and workers. The base class of `PoolStats`."""

    seconds: float
    envs: tuple[EnvStats, ...]
    workers: tuple[WorkerStats, ...]
    caller: CallerStats
    cores: int
    setup: PoolSetup
    taken: float = 0.0

    # -- sums -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of rows that workers have filled, by steps and resets of envs."""
        return sum(worker.steps for worker in self.workers)

    @property
    def steps_per_second(self) -> float:
        """`steps` a second."""
        return self.steps / self.seconds if self.seconds > 0 else 0.0

    @property
    def batches(self) -> int:
        """Batches received."""
        return self.caller.batches

    @property
    def env_seconds(self) -> float:
        """Seconds of wall time inside envs, summed over workers."""
        return sum(worker.busy for worker in self.workers)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the workers since their envs were built, spinning not counted."""
        return sum(worker.cpu for worker in self.workers)

    @property
    def queued_seconds(self) -> float:
        """Time in which workers were ready to run, but other processes had the core, summed over workers."""
        return sum(worker.queued for worker in self.workers)

    @property
    def restarts(self) -> int:
        """The number of worker processes that have replaced others, after faults or to renew envs."""
        return sum(worker.restarts for worker in self.workers)

    @property
    def memory_renewals(self) -> int:
        """The number of times that a worker grew past `max_worker_memory` and had to be replaced."""
        return sum(worker.memory_renewals for worker in self.workers)

    @property
    def faults(self) -> int:
        """The number of failures of envs."""
        return sum(env.faults for env in self.envs)

    @property
    def episodes(self) -> int:
        """The number of episodes that have ended."""
        return sum(env.episodes for env in self.envs)

    @property
    def returns(self) -> tuple[float, ...]:
        """The sums of rewards of the last episodes of each env, env by env."""
        return tuple(value for env in self.envs for value in env.returns)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths, in steps, of the episodes of `returns`."""
        return tuple(value for env in self.envs for value in env.lengths)

    @cached_property
    def step(self) -> Durations:
        """The durations of steps of all envs."""
        return sum((env.step for env in self._env_objects), Durations())

    @cached_property
    def reset(self) -> Durations:
        """The durations of resets of all envs."""
        return sum((env.reset for env in self._env_objects), Durations())

    @property
    def _env_objects(self) -> Sequence[EnvStats]:
        """The figures of each env object. Those of a vector env, which is one object, are those of its first env."""
        return self.envs[:: self.setup.width]

    def __sub__(self, earlier: Self) -> Self:
        if not isinstance(earlier, Snapshot):
            return NotImplemented
        if self.setup.envs_of_worker != earlier.setup.envs_of_worker:
            raise ValueError("expected two snapshots of the same pool")
        if (earlier.taken, earlier.batches, earlier.seconds) > (self.taken, self.batches, self.seconds):
            raise ValueError("expected the later snapshot first, got the earlier one; write `later - earlier`")
        return replace(
            self,
            seconds=self.seconds - earlier.seconds,
            envs=tuple(map(sub, self.envs, earlier.envs)),
            workers=tuple(map(sub, self.workers, earlier.workers)),
            caller=self.caller - earlier.caller,
        )
