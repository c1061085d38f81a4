"""Runs a benchmark: each contender is built, warmed up, and stepped in interleaved rounds (A B C, A B C)."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda._system.cores import usable_cores, usable_cpus

from .contenders import Contender, Plan
from .env_exits import exits_raise
from .processes import busy_seconds, mean_pss_mb, total_cpu_seconds, wait_until_idle
from .results import Entry, Result, Turn
from .workloads import Actions, one_line, probe_spaces, sample_actions

ACTION_BATCHES = 256
"""Number of batches of actions, sampled beforehand and used in turn."""
WARM_UP_SECONDS = 0.5
LEAD_IN = 0.1
"""Share of a turn that is stepped first without counting: it refills the caches."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Progress:
    """The state of a benchmark, reported before each start, warm-up and turn."""

    doing: str
    done: int
    total: int
    result: Result


class Runner:
    """A contender in a benchmark, with its figures and its actions.

    If it raises, its figures get the exception, and the benchmark continues without it.
    """

    def __init__(self, kind: type[Contender], plan: Plan, clock: Clock) -> None:
        self.entry = Entry(kind.name)
        self._kind = kind
        self._plan = plan
        self._clock = clock
        self._contender: Contender | None = None
        self._pids: list[int] = []
        self._batches: Iterator[Any] = iter(())
        self._num_batches = 0
        self._count_of = _sum if plan.workload.reward_is_steps or kind.counts_steps else self._all_envs

    @property
    def is_running(self) -> bool:
        return self._contender is not None

    def build(self, actions: Actions) -> None:
        """Imports the library, then starts the workers and resets the envs, and measures the time of the start."""
        with self._dropping_out():
            self._kind.load()
            begin = self._clock()
            self._contender = contender = self._kind(self._plan)
            contender.reset(self._plan.seed)
            self.entry.startup_seconds = self._clock() - begin
            self._pids = contender.worker_pids()
            self._batches = itertools.cycle([contender.prepare(actions.space, batch) for batch in actions.batches])
        self.entry.num_workers = len(self._pids)

    def warm_up(self, seconds: float) -> None:
        """Steps for ``seconds``, so that caches and allocators settle; then measures the workers' memory."""
        self._begin_turn(seconds)
        self._settle()
        self.entry.worker_mb = mean_pss_mb(self._pids)

    def take_turn(self, seconds: float, others: Sequence[Runner]) -> None:
        """Steps for ``seconds``. Records the turn, and the CPU time that other contenders' idle workers took."""
        gc.collect()
        self._begin_turn(max(seconds * LEAD_IN, self._plan.lead_in))
        idle_before = [other.workers_cpu() for other in others]
        cpu_before, busy_before, learning_before = self._cpu(), busy_seconds(), self._learning_seconds()
        parent_before, self._num_batches = time.process_time(), 0
        env_steps, elapsed = self._step_for(seconds)
        parent, cpu, busy = time.process_time() - parent_before, self._cpu() - cpu_before, busy_seconds()
        learning = self._learning_seconds() - learning_before
        if not self.is_running:
            return
        idle = [other.workers_cpu() - before for other, before in zip(others, idle_before, strict=True)]
        others_cpu = max(0.0, busy - busy_before - cpu - sum(idle))
        self.entry.turns.append(Turn(env_steps, elapsed, cpu, others_cpu, parent, self._num_batches, learning))
        for other, used in zip(others, idle, strict=True):
            other.entry.idle_seconds += elapsed
            other.entry.idle_cpu_seconds += used
        self._settle()

    def workers_cpu(self) -> float:
        """Returns the CPU seconds of the contender's workers so far; 0.0 without workers, or if it has dropped out."""
        return total_cpu_seconds(self._pids)

    def close(self) -> None:
        contender, self._contender, self._pids = self._contender, None, []
        if contender is not None:
            with self._dropping_out():
                contender.close()

    @contextmanager
    def _dropping_out(self) -> Iterator[None]:
        """Takes the contender out of the benchmark if the block raises. The contender's first error is kept."""
        try:
            with exits_raise():
                yield
        except Exception as error:
            self.entry.error = self.entry.error or one_line(error)
            self.close()

    def _begin_turn(self, lead_in: float) -> None:
        """Prepares the contender for a turn, and steps it for ``lead_in`` seconds."""
        if self._contender is not None:
            with self._dropping_out():
                self._contender.begin_turn(self._plan.seed)
        self._step_for(lead_in)

    def _step_for(self, seconds: float) -> tuple[int, float]:
        """Steps for ``seconds``, at least once; returns the number of env steps and the seconds they took."""
        contender, batches, clock, count_of = self._contender, self._batches, self._clock, self._count_of
        if contender is None:
            return 0, 0.0
        count, begin = 0, clock()
        with self._dropping_out():
            while True:
                count += count_of(contender.step(next(batches)))
                self._num_batches += 1
                elapsed = clock() - begin
                if elapsed >= seconds:
                    return count, elapsed
        return 0, 0.0

    def _all_envs(self, rewards: Any) -> int:
        return self._plan.num_envs

    def _cpu(self) -> float:
        return time.process_time() + self.workers_cpu()

    def _learning_seconds(self) -> float:
        return 0.0 if self._contender is None else self._contender.learning_seconds

    def _settle(self) -> None:
        if self._pids:
            wait_until_idle(self.workers_cpu)


def race(
    kinds: Sequence[type[Contender]],
    plan: Plan,
    *,
    seconds: float,
    rounds: int,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    clock: Clock = time.perf_counter,
) -> Result:
    """Measures the contenders side by side: ``seconds`` for each, divided over the rounds.

    ``kinds`` begins with the plain loop and remuda. Raises `WorkloadError` if the env cannot be built at all. A
    contender that raises only loses its own turns. All are closed when this function returns or is interrupted.
    """
    space = probe_spaces(plan.workload).action_space
    actions = sample_actions(space, plan.num_envs, ACTION_BATCHES, plan.seed)
    runners = [Runner(kind, plan, clock) for kind in kinds]
    result = _blank_result(plan, rounds, seconds, [runner.entry for runner in runners])
    turn_seconds = seconds / rounds
    steps = itertools.count()

    def announce(doing: str) -> None:
        on_progress(Progress(doing, next(steps), (2 + rounds) * len(runners), result))

    try:
        for runner in runners:
            announce(f"starting {runner.entry.name}")
            runner.build(actions)
        for runner in runners:
            announce(f"warming up {runner.entry.name}")
            runner.warm_up(min(turn_seconds, WARM_UP_SECONDS))
        for round_number in range(1, rounds + 1):
            for runner in runners:
                announce(f"round {round_number} of {rounds}: {runner.entry.name}")
                others = [other for other in runners if other is not runner]
                runner.take_turn(turn_seconds, others)
    finally:
        for runner in runners:
            runner.close()
    return result


def _sum(rewards: Any) -> int:
    return int(np.sum(rewards))


def _blank_result(plan: Plan, rounds: int, seconds: float, entries: Sequence[Entry]) -> Result:
    cores = usable_cores()
    return Result(
        env=plan.workload.name,
        num_envs=plan.num_envs,
        num_workers=plan.num_workers,
        backend=plan.backend,
        start_method=plan.start_method,
        rounds=rounds,
        seconds=seconds,
        cores=cores,
        loops=plan.loops or cores,
        entries=entries,
        cpus=usable_cpus(),
    )
