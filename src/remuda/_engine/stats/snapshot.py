"""Snapshots: the figures of a pool at one moment. They are immutable, and two snapshots can be subtracted.

A new figure is a field of one of these classes. If it lies in shared memory, it is also a number in
`src/core/shm/figures.hpp` and `figures.py`. Reading, differences and the documentation follow from the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from remuda._engine.stats.durations import Durations
from remuda._engine.stats.record import Record, check_order, described, documented, latest, total
from remuda._engine.stats.setup import PoolSetup

if TYPE_CHECKING:
    from typing_extensions import Self  # `typing` has it since Python 3.11

_R = TypeVar("_R", bound=Record)


@documented
@dataclass(frozen=True, eq=False)
class EnvStats(Record):
    """The figures of one env."""

    env_id: int = field(metadata=described("Its number, as faults name it; with spares it may back any slot."))
    worker: int = field(metadata=described("The index of the worker that hosts it."))
    step: Durations = total(
        Durations(),
        """The durations of its steps without resets, in seconds like all durations. Each env of a vector env has the
        durations of the whole vector env.""",
        "steps",
    )
    reset: Durations = total(Durations(), "The durations of its resets.", "resets")
    episodes: int = total(0, "The number of episodes that have ended, also by a time limit.", "episodes")
    returns: tuple[float, ...] = latest((), "Sums of rewards of its last episodes (15 at most), the latest last.")
    lengths: tuple[int, ...] = latest((), "The steps of these episodes.")
    faults: int = total(0, "The number of its exceptions, deaths and hangs.", "faults")

    @property
    def steps(self) -> int:
        """The number of the env's steps."""
        return self.step.count

    @property
    def _age(self) -> float:
        return self.step.count + self.reset.count

    def __sub__(self, earlier: EnvStats) -> EnvStats:
        between = super().__sub__(earlier)
        older = max(0, len(self.returns) - between.episodes)
        return replace(between, returns=self.returns[older:], lengths=self.lengths[older:])


@documented
@dataclass(frozen=True, eq=False)
class WorkerStats(Record):
    """The figures of one worker."""

    index: int = field(metadata=described("Its place in `pool.workers`."))
    env_ids: tuple[int, ...] = field(metadata=described("The envs that it hosts."))
    pid: int | None = latest(None, "Its process id; None if it has no process of its own.")
    seconds: float = total(0.0, "Wall time of these figures.")
    steps: int = total(0, "Rows that it has filled: steps of envs, and resets.", "steps")
    busy: float = total(0.0, "Seconds of that inside envs.", "busy_ns")
    cpu: float = total(
        0.0, "Seconds of CPU time, spinning not counted. The last millisecond may still be missing.", "cpu_ns"
    )
    queued: float = total(0.0, "Seconds in which it was ready to run, and others had the core.")
    idle: Durations = total(Durations(), "The durations of its waits for a command.", "idle")
    restarts: int = total(0, "Processes that were started in its place, after faults and to renew envs.", "restarts")
    memory_renewals: int = total(
        0, "The number of times that it grew past `max_worker_memory`, and had to be replaced.", "memory_renewals"
    )
    memory: int | None = latest(
        None,
        """Bytes of memory that its process and all that it has started take for themselves, swapped out or not: what
        `max_worker_memory` limits. While it is restarted, that of its successor; 0 if there is no process at this
        moment; None if workers have no processes of their own.""",
    )
    lost: float = total(
        0.0,
        """Seconds in which it served nothing because of faults: from the beginning of what an env failed in until the
        successor of its process serves, or until the env is built again.""",
        "outage_ns",
        "rebuild_ns",
    )
    pickling: float = total(
        0.0, "Seconds of `busy` and after it in which it pickled and sent what infos have beside columns.", "info_ns"
    )
    info_key: str | None = latest(
        None, "The key of infos whose pickled value is the largest; None if nothing was pickled.", "info_key"
    )
    info_bytes: int = latest(0, "Bytes of that value.", "info_bytes")
    doing: str | None = latest(None, 'What it does now: "step", "reset", "call", ...; None while it waits.')
    doing_env: int | None = latest(None, "The env of that command; None: no env, or all.")
    doing_since: float = latest(0.0, "The seconds since it began with that.")

    @property
    def cpu_share(self) -> float:
        """The share of a core that the worker has used; 1.0 is a whole core."""
        return self.cpu / self.seconds if self.seconds > 0 else 0.0

    @property
    def _age(self) -> float:
        return self.seconds

    def __sub__(self, earlier: WorkerStats) -> WorkerStats:
        between = super().__sub__(earlier)
        # The system counts the time in queues for each process, so it begins at 0 for a worker's successor.
        return between if self.pid == earlier.pid else replace(between, queued=self.queued)


@documented
@dataclass(frozen=True)
class CallerStats(Record):
    """The figures of the pool's caller. They show the use of your program's time."""

    seconds: float = total(0.0, "Wall time since it first sent anything.")
    batches: int = total(0, "The number of batches that it has received.", "batches")
    waiting: float = total(
        0.0,
        'Seconds of that in which it waited for envs; with `backend="serial"`, in which it stepped them.',
        "waited_ns",
    )
    gathering: float = total(
        0.0, "Seconds in which the pool checked actions and made batches; estimated from one batch in sixteen."
    )
    queued: float = total(0.0, "Seconds in which it was ready to run, and others had the core.")
    memory: int | None = latest(None, "Bytes of its process that are in memory; None if the system does not report it.")
    unpickling: float = total(
        0.0,
        "Seconds in which infos without columns were unpickled, because the caller looked at them.",
        "unpickling_ns",
    )
    cpu: float = total(0.0, "Seconds of CPU time of all threads of its process.")
    torch_threads: int | None = latest(
        None,
        """The threads that PyTorch's operators use there; None if PyTorch is not imported, or if another process took
        the snapshot.""",
    )

    @property
    def own(self) -> float:
        """Seconds in the caller's own code, between a batch and the next command: the policy, and all else."""
        return max(0.0, self.seconds - self.waiting - self.gathering - self.unpickling)

    @property
    def _age(self) -> float:
        return self.seconds

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
    def steps_by_worker(self) -> tuple[int, ...]:
        """The number of rows that each worker has filled."""
        return tuple(worker.steps for worker in self.workers)

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
    def step_seconds(self) -> float:
        """The mean wall time of a step (or reset) inside the env."""
        return self.env_seconds / self.steps if self.steps else 0.0

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the workers since their envs were built, spinning not counted."""
        return sum(worker.cpu for worker in self.workers)

    @property
    def queued_seconds(self) -> float:
        """Time in which workers were ready to run, but other processes had the core, summed over workers."""
        return sum(worker.queued for worker in self.workers)

    @property
    def waited_seconds(self) -> float:
        """Seconds that your program has waited for results."""
        return self.caller.waiting

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
        return self.envs[:: self.setup.vector_size or 1]

    def __sub__(self, earlier: Self) -> Self:
        if not isinstance(earlier, Snapshot):
            return NotImplemented
        if self.setup.envs_of_worker != earlier.setup.envs_of_worker:
            raise ValueError("expected two snapshots of the same pool")
        check_order(earlier._age <= self._age)
        return replace(
            self,
            seconds=self.seconds - earlier.seconds,
            envs=_differences(self.envs, earlier.envs),
            workers=_differences(self.workers, earlier.workers),
            caller=self.caller - earlier.caller,
        )

    @property
    def _age(self) -> tuple[float, int, float]:
        """A key that never decreases: of two snapshots, the one with the larger key is later."""
        return self.taken, self.batches, self.seconds


def _differences(later: Iterable[_R], earlier: Iterable[_R]) -> tuple[_R, ...]:
    return tuple(one - other for one, other in zip(later, earlier, strict=True))
