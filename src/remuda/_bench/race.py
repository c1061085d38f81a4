"""Runs a benchmark: each contender is built, warmed up, and stepped in interleaved rounds (A B C, A B C)."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from remuda._system.processes import usage_of, usage_of_cores

from .contenders import Contender, Plan
from .results import Entry, Result, Turn
from .workloads import Actions, one_line, probe_spaces, sample_actions

ACTION_BATCHES = 256
"""Number of batches of actions, sampled beforehand and used in turn."""
WARM_UP_SECONDS = 0.5
LEAD_IN = 0.1
"""Share of a turn that is stepped first without counting: it refills the caches."""
_IDLE_WINDOW = 0.02
_MOST_WINDOWS = 50

Clock = Callable[[], float]


def race(
    kinds: Sequence[type[Contender]],
    plan: Plan,
    *,
    seconds: float,
    rounds: int,
    lead_in: float = 0.0,
    on_progress: Callable[[str], None] = lambda line: None,
    clock: Clock = time.perf_counter,
) -> Result:
    """Measures the contenders side by side. All are closed when this function returns or is interrupted.

    Args:
        kinds: The plain loop, remuda, and others. A contender that raises only loses its own turns.
        plan: The settings.
        seconds: The time of each contender, divided over the rounds.
        rounds: The number of turns of each contender.
        lead_in: The minimum of seconds to step before each turn without counting.
        on_progress: Called with a line before each start, warm-up and turn.
        clock: Returns the time in seconds.

    Raises:
        WorkloadError: The env cannot be built at all.
    """
    space = probe_spaces(plan.workload).action_space
    actions = sample_actions(space, plan.num_envs, ACTION_BATCHES, plan.seed)
    runners = [_Runner(kind, plan, clock) for kind in kinds]
    result = Result(plan, rounds, seconds, [runner.entry for runner in runners])
    turn_seconds = seconds / rounds
    steps = itertools.count(1)

    def announce(doing: str) -> None:
        on_progress(f"[{next(steps)}/{(2 + rounds) * len(runners)}] {doing}")

    try:
        for runner in runners:
            announce(f"starting {runner.entry.name}")
            runner.build(actions)
        for runner in runners:
            announce(f"warming up {runner.entry.name}")
            runner.warm_up(min(turn_seconds, WARM_UP_SECONDS))
        for number in range(1, rounds + 1):
            for runner in runners:
                announce(f"round {number} of {rounds}: {runner.entry.name}")
                pids = [pid for other in runners for pid in other.pids]
                runner.take_turn(turn_seconds, max(turn_seconds * LEAD_IN, lead_in), pids)
    finally:
        for runner in runners:
            runner.close()
    return result


class _Runner:
    """A contender in a benchmark, with its figures and its actions.

    If it raises, its figures get the exception, and the benchmark continues without it.
    """

    def __init__(self, kind: type[Contender], plan: Plan, clock: Clock) -> None:
        self.entry = Entry(kind.name)
        self.pids: list[int] = []
        self._kind, self._plan, self._clock = kind, plan, clock
        self._contender: Contender | None = None
        self._batches: Iterator[Any] = iter(())

    def build(self, actions: Actions) -> None:
        """Imports the library, then starts the workers and resets the envs, and measures the time of the start."""
        with self._dropping_out():
            self._kind.load()
            begin = self._clock()
            self._contender = contender = self._kind(self._plan)
            contender.reset(self._plan.seed)
            self.entry.startup_seconds = self._clock() - begin
            self.pids = contender.worker_pids()
            self._batches = itertools.cycle([contender.prepare(actions.space, batch) for batch in actions.batches])
        self.entry.num_workers = len(self.pids)

    def warm_up(self, seconds: float) -> None:
        """Steps for ``seconds``, so that caches and allocators settle."""
        self._begin_turn(seconds)
        self._wait_until_idle()

    def take_turn(self, seconds: float, lead_in: float, pids: Sequence[int]) -> None:
        """Steps for ``seconds``, and records the turn. ``pids``: the workers of all contenders."""
        gc.collect()
        self._begin_turn(lead_in)
        before = _cpu(pids)
        counted = self._step_for(seconds)
        if counted is not None:
            parent, others = (now - then for now, then in zip(_cpu(pids), before, strict=True))
            self.entry.turns.append(Turn(*counted, parent, max(0.0, others)))
        self._wait_until_idle()

    def close(self) -> None:
        contender, self._contender, self.pids = self._contender, None, []
        if contender is not None:
            with self._dropping_out():
                contender.close()

    @contextmanager
    def _dropping_out(self) -> Iterator[None]:
        """Takes the contender out of the benchmark if the block raises. The contender's first error is kept."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.entry.error = self.entry.error or one_line(error)
            self.close()

    def _begin_turn(self, lead_in: float) -> None:
        """Prepares the contender for a turn, and steps it for ``lead_in`` seconds."""
        if self._contender is not None:
            with self._dropping_out():
                self._contender.begin_turn()
        self._step_for(lead_in)

    def _step_for(self, seconds: float) -> tuple[int, int, float] | None:
        """Steps for ``seconds``, at least once. Returns the number of env steps, of batches, and the seconds.

        Returns None if the contender is out of the benchmark.
        """
        contender, batches, clock = self._contender, self._batches, self._clock
        if contender is None:
            return None
        env_steps, begin = 0, clock()
        with self._dropping_out():
            for number in itertools.count(1):
                env_steps += contender.step(next(batches))
                elapsed = clock() - begin
                if elapsed >= seconds:
                    return env_steps, number, elapsed
        return None

    def _wait_until_idle(self) -> None:
        """Waits, at most a second, until the workers use no CPU.

        Some pools spin for a while after their last step, which would slow the next contender down.
        """
        used = _cpu_of(self.pids)
        for _ in range(_MOST_WINDOWS if self.pids else 0):
            time.sleep(_IDLE_WINDOW)
            before, used = used, _cpu_of(self.pids)
            if used == before:
                return


def _cpu(pids: Sequence[int]) -> tuple[float, float]:
    """Returns the CPU seconds of this process, and those of all programs on our CPUs without this process and ``pids``.

    The CPU time of the host's other virtual machines on these CPUs counts as that of other programs.
    """
    cores = usage_of_cores(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
    parent = time.process_time()
    return parent, cores.busy + cores.stolen - parent - _cpu_of(pids)


def _cpu_of(pids: Sequence[int]) -> float:
    return sum(usage_of(pid).cpu for pid in pids)
