"""The figures of a pool at one moment: immutable, and two of them can be subtracted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

from remuda._engine.stats.durations import Durations

if TYPE_CHECKING:
    from typing_extensions import Self  # in `typing` since Python 3.11

_S = TypeVar("_S", "EnvStats", "WorkerStats")


@dataclass(frozen=True, eq=False)
class EnvStats:
    """What one env has done.

    Attributes:
        env_id: Its number, as faults name it; with spares it may back any slot.
        worker: The index of the worker that hosts it.
        step: How long its steps took, without resets; in seconds, as all durations are. Of vector envs that of a whole
            one, told of each of those in it.
        reset: How long its resets took.
        episodes: How many it has ended, by itself or by its time limit.
        returns: Sums of rewards of its last episodes (15 at most), the latest last.
        lengths: Their steps.
        faults: How often it has raised, died or hung where that was restarted.
    """

    env_id: int
    worker: int
    step: Durations = field(default_factory=Durations)
    reset: Durations = field(default_factory=Durations)
    episodes: int = 0
    returns: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    faults: int = 0

    @property
    def steps(self) -> int:
        """How many steps it has done."""
        return self.step.count

    def __sub__(self, earlier: EnvStats) -> EnvStats:
        _check_order(earlier.step.count + earlier.reset.count <= self.step.count + self.reset.count)
        episodes = max(0, self.episodes - earlier.episodes)
        since = max(0, len(self.returns) - episodes)
        return replace(
            self,
            step=self.step - earlier.step,
            reset=self.reset - earlier.reset,
            episodes=episodes,
            returns=self.returns[since:],
            lengths=self.lengths[since:],
            faults=self.faults - earlier.faults,
        )


@dataclass(frozen=True, eq=False)
class WorkerStats:
    """What one worker has done.

    Attributes:
        index: Its place in `pool.workers`.
        env_ids: The envs that it hosts.
        pid: Its process id; None where it has no process of its own.
        seconds: How long that took, on the wall.
        steps: Rows that it has filled: steps of envs, and resets.
        busy: Seconds of that inside envs.
        cpu: Seconds of CPU time, spinning not counted. The last millisecond may still be missing.
        queued: Seconds in which it was ready to run, and others had the core.
        idle: How long it waited for something to do, each time.
        restarts: Processes that were started in its place, after faults and to renew envs.
        memory_renewals: How often it had grown past `max_worker_memory`, and was to be replaced.
        memory: Bytes of memory that its process and all that it has started take for themselves, swapped out or not:
            what `max_worker_memory` limits. While it is restarted, that of its successor; 0 where there is no process
            at this moment; None where workers have no processes of their own.
        lost: Seconds in which it served nothing because of faults: from the beginning of what an env failed in until
            the successor of its process serves, or until the env is built again.
        pickling: Seconds of `busy` and after it in which it pickled and sent what infos have beside columns.
        info_key: The key of infos whose pickled value is the largest; None where nothing was pickled.
        info_bytes: Bytes of that value.
        doing: What it does now: "step", "reset", "call", ...; None while it waits.
        doing_env: To which env; None: to none, or to all.
        doing_since: How many seconds ago it began with that.
    """

    index: int
    env_ids: tuple[int, ...]
    pid: int | None = None
    seconds: float = 0.0
    steps: int = 0
    busy: float = 0.0
    cpu: float = 0.0
    queued: float = 0.0
    idle: Durations = field(default_factory=Durations)
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
        """How much of a core it has used; 1.0 is all of one."""
        return self.cpu / self.seconds if self.seconds > 0 else 0.0

    def __sub__(self, earlier: WorkerStats) -> WorkerStats:
        _check_order(earlier.seconds <= self.seconds)
        queued = self.queued - earlier.queued if self.pid == earlier.pid else self.queued
        return replace(
            self,
            seconds=self.seconds - earlier.seconds,
            steps=self.steps - earlier.steps,
            busy=self.busy - earlier.busy,
            cpu=self.cpu - earlier.cpu,
            queued=max(0.0, queued),
            idle=self.idle - earlier.idle,
            restarts=self.restarts - earlier.restarts,
            memory_renewals=self.memory_renewals - earlier.memory_renewals,
            lost=self.lost - earlier.lost,
            pickling=self.pickling - earlier.pickling,
        )


@dataclass(frozen=True)
class CallerStats:
    """Where the time of the pool's caller went: your program.

    Attributes:
        seconds: On the wall, since it first sent anything.
        batches: That it has received.
        waiting: Seconds of that in which it waited for envs; with `backend="serial"`, in which it stepped them.
        gathering: Seconds in which the pool checked actions and made batches; estimated from one batch in sixteen.
        queued: Seconds in which it was ready to run, and others had the core.
        memory: Bytes of its process that are in memory; None where that is not told.
        unpickling: Seconds in which infos without columns were unpickled, because the caller looked at them.
        cpu: Seconds of CPU time of all threads of its process.
        torch_threads: The threads that PyTorch's operators use there; None where PyTorch is not imported, or the
            snapshot was taken by another process.
    """

    seconds: float = 0.0
    batches: int = 0
    waiting: float = 0.0
    gathering: float = 0.0
    queued: float = 0.0
    memory: int | None = None
    unpickling: float = 0.0
    cpu: float = 0.0
    torch_threads: int | None = None

    @property
    def own(self) -> float:
        """Seconds in its own code, between a batch and the next command: the policy, and all else."""
        return max(0.0, self.seconds - self.waiting - self.gathering - self.unpickling)

    def __sub__(self, earlier: CallerStats) -> CallerStats:
        _check_order(earlier.seconds <= self.seconds)
        seconds, waiting = self.seconds - earlier.seconds, self.waiting - earlier.waiting
        return replace(
            self,
            seconds=seconds,
            batches=self.batches - earlier.batches,
            waiting=waiting,
            gathering=min(max(0.0, self.gathering - earlier.gathering), max(0.0, seconds - waiting)),  # an estimate
            queued=max(0.0, self.queued - earlier.queued),
            unpickling=self.unpickling - earlier.unpickling,
            cpu=max(0.0, self.cpu - earlier.cpu),
        )


@dataclass(frozen=True)
class MachineStats:
    """What the cores that this program may use were busy with.

    Attributes:
        cores: How many it may use; a control group's limit is taken into account.
        busy: Seconds in which they were busy, all together; 0.0 where that is not told.
        own: Seconds of that with this program and its workers.
        seconds: On the wall, in which that was: since the pool was made; of a difference, between the two. 0.0: in
            those of the whole snapshot.
        stolen: Seconds in which they would have been busier, had the host of this virtual machine given them to it;
            0.0 where that is not told.
    """

    cores: int = 1
    busy: float = 0.0
    own: float = 0.0
    seconds: float = 0.0
    stolen: float = 0.0

    def others(self, seconds: float) -> float:
        """How many cores' worth of work others did in so many seconds; simulators that envs have started count, too.

        Args:
            seconds: In which that was, where `self.seconds` does not say so; `PoolStats.seconds`.
        """
        seconds = self.seconds or seconds
        return max(0.0, self.busy - self.own) / seconds if seconds > 0 else 0.0

    def __sub__(self, earlier: MachineStats) -> MachineStats:
        return replace(
            self,
            busy=max(0.0, self.busy - earlier.busy),
            own=max(0.0, self.own - earlier.own),
            seconds=max(0.0, self.seconds - earlier.seconds),
            stolen=max(0.0, self.stolen - earlier.stolen),
        )


_SPLIT = """\
halves = pool.split(2)
for half in halves:
    half.send_reset()
while True:
    for half in halves:
        batch = half.recv()
        half.send(policy(batch.obs))"""


_SLIM = """\
class Slim(gymnasium.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        info.pop({key}, None)
        return obs, reward, terminated, truncated, info


{made}"""


@dataclass(frozen=True)
class Setup:
    """How a pool was made, as far as its figures depend on that.

    Attributes:
        envs_of_worker: How many envs each worker hosts, the spares last.
        backend, autoreset, spares, resets_ahead, vector_size: As the pool has them.
        is_chosen: Whether "auto" has chosen how many workers there are, or envs that render leave no choice.
        parts: In how many parts the pool is split.
        options: Names and values, as code, of the options that the caller has given.
        keeps_apart: Whether the options ask for envs that are kept apart: then fewer workers are never suggested.
        needs_processes: Whether the options ask for what only processes have: then the caller is never told to step
            the envs itself.
        make, spare, split, partial, slim: How code says what a verdict suggests, with places to be filled in: to make
            it with other options, to have spare envs, to step one half while a policy deals with the other, to go on
            with those that are done, to leave a key out of infos. Empty where there is no such thing.
    """

    envs_of_worker: tuple[int, ...]
    backend: Literal["process", "thread", "serial", "auto"] = "process"
    autoreset: str = "next_step"
    spares: int = 0
    resets_ahead: bool = False
    vector_size: int | None = None
    is_chosen: bool = False
    parts: int = 1
    options: tuple[tuple[str, str], ...] = ()
    keeps_apart: bool = False
    needs_processes: bool = False
    make: str = "pool = remuda.Pool({env_fns}, {options})"
    spare: str = "pool = remuda.Pool(env_fns + env_fns[:1] * {spares}, spares={spares}, {options})"
    split: str = _SPLIT
    partial: str = "pool.send(policy(batch.obs), batch.env_ids)\nbatch = pool.recv(min_envs={enough})"
    slim: str = _SLIM

    @property
    def num_envs(self) -> int:
        """Without the spares."""
        return sum(self.envs_of_worker) - self.spares

    @property
    def num_workers(self) -> int:
        """All of them, those of spares counted."""
        return len(self.envs_of_worker)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The figures of `PoolStats`, and their sums."""

    seconds: float
    envs: tuple[EnvStats, ...]
    workers: tuple[WorkerStats, ...]
    caller: CallerStats
    machine: MachineStats
    setup: Setup
    taken: float = 0.0

    # -- sums -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Rows that workers have filled: steps of envs, and resets."""
        return sum(worker.steps for worker in self.workers)

    @property
    def steps_by_worker(self) -> tuple[int, ...]:
        """`steps`, worker by worker."""
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
        """Wall time inside the envs, summed over workers."""
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
        """Time in which workers were ready to run, and others had the core, summed over workers."""
        return sum(worker.queued for worker in self.workers)

    @property
    def waited_seconds(self) -> float:
        """Time your program spent waiting for results."""
        return self.caller.waiting

    @property
    def restarts(self) -> int:
        """Worker processes that were started in the place of others, after faults and to renew envs."""
        return sum(worker.restarts for worker in self.workers)

    @property
    def memory_renewals(self) -> int:
        """How often a worker had grown past `max_worker_memory`, and was to be replaced."""
        return sum(worker.memory_renewals for worker in self.workers)

    @property
    def faults(self) -> int:
        """How often envs have failed."""
        return sum(env.faults for env in self.envs)

    @property
    def episodes(self) -> int:
        """Episodes that envs have ended."""
        return sum(env.episodes for env in self.envs)

    @property
    def returns(self) -> tuple[float, ...]:
        """Of the last episodes of each env, env by env."""
        return tuple(value for env in self.envs for value in env.returns)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the same episodes, in steps."""
        return tuple(value for env in self.envs for value in env.lengths)

    @cached_property
    def step(self) -> Durations:
        """How long steps took, of all envs."""
        return sum((env.step for env in self._env_objects), Durations())

    @cached_property
    def reset(self) -> Durations:
        """How long resets took, of all envs."""
        return sum((env.reset for env in self._env_objects), Durations())

    @property
    def _env_objects(self) -> Sequence[EnvStats]:
        """One for each that a factory has built."""
        return self.envs[:: self.setup.vector_size or 1]

    def __sub__(self, earlier: Self) -> Self:
        if not isinstance(earlier, Snapshot):
            return NotImplemented
        if self.setup.envs_of_worker != earlier.setup.envs_of_worker:
            raise ValueError("expected two snapshots of the same pool")
        _check_order(earlier._age <= self._age)
        return replace(
            self,
            seconds=self.seconds - earlier.seconds,
            envs=_differences(self.envs, earlier.envs),
            workers=_differences(self.workers, earlier.workers),
            caller=self.caller - earlier.caller,
            machine=self.machine - earlier.machine,
        )

    @property
    def _age(self) -> tuple[float, int, float]:
        """Grows from snapshot to snapshot."""
        return self.taken, self.batches, self.seconds


def _check_order(is_in_order: bool) -> None:
    if not is_in_order:
        raise ValueError("expected the later snapshot first, got the earlier one; write `later - earlier`")


def _differences(later: Iterable[_S], earlier: Iterable[_S]) -> tuple[_S, ...]:
    return tuple(one - other for one, other in zip(later, earlier, strict=True))
