"""The noise rule: a round counts only if two processes together do nearly twice as much work as one alone.

In each round one plain Python loop runs alone, and then two at the same time, each in a process of its own. The round
counts if the two together make at least 0.9 of twice the turns of the single one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Entry
from remuda._system.cores import usable_cores

AT_LEAST = 0.9
SECONDS = 0.2
"""Duration of one loop, or of two at once, in a check."""
_LOOP = """
import sys, time
for line in sys.stdin:
    turns, end = 0, time.perf_counter() + float(line)
    while time.perf_counter() < end:
        turns += 1
    print(turns, flush=True)
"""
ONE_CORE = (
    "This process may use one core only. Two loops at once can never reach 0.9 of twice one there, so no round can "
    "count and no figure is published. With --any-round the figures are printed all the same."
)


class Loops:
    """Processes that run a plain Python loop on request, all at the same time."""

    def __init__(self, count: int) -> None:
        pipe, command = subprocess.PIPE, [sys.executable, "-S", "-c", _LOOP]
        self._processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def turns(self, seconds: float, count: int | None = None) -> int:
        """Makes the first ``count`` processes (None: all) loop for some seconds. Returns the sum of loop turns."""
        looping = self._processes[:count]
        for process in looping:
            print(seconds, file=process.stdin, flush=True)
        return sum(int(process.stdout.readline()) for process in looping if process.stdout is not None)

    def are_quiet(self) -> bool:
        """Returns whether the machine is quiet right now: two loops at once are nearly twice as fast as one."""
        return counts(self.turns(SECONDS, 1), self.turns(SECONDS, 2))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def counts(one: float, two: float) -> bool:
    """Returns whether a round counts. ``one``, ``two``: the loop turns of one process alone, and of two at once."""
    return two >= AT_LEAST * 2 * one


def require_cores() -> None:
    """Raises SystemExit if this process may use one core only, because no round can count there."""
    if usable_cores() < 2:
        raise SystemExit(ONE_CORE)


class OneLoop(Contender):
    """A contender that runs one plain loop alone, so that each round of a race measures it."""

    name = "one loop"
    count = 1

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._loops = Loops(self.count)

    def reset(self, seed: int) -> None: ...

    def step(self, actions: Any) -> int:
        return self._loops.turns(0.05)

    def close(self) -> None:
        self._loops.close()

    def worker_pids(self) -> list[int]:
        return self._loops.pids


class TwoLoops(OneLoop):
    """A contender that runs two plain loops at once."""

    name = "two loops"
    count = 2


def counted_rounds(one: Entry, two: Entry) -> Sequence[bool]:
    """Returns for each round of a race whether it counts, given the results of `OneLoop` and `TwoLoops`."""
    return [counts(alone, both) for alone, both in zip(one.rates, two.rates, strict=True)]


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Runs ``count`` processes within the block, each of which keeps a core busy."""
    busy = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
