"""A race with a fake clock and no processes: time passes only when a fake contender steps."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any, ClassVar

from harness.session import Session
from pool_envs import CountingEnv

from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Entry, Result, Turn
from remuda._bench.workloads import Workload
from remuda._system.cores import usable_cpus


def session(seconds: float = 0.02, rounds: int = 1, **options: Any) -> Session:
    """Returns a session that by default counts every round, because the machine is busy with other tests."""
    usual = {"any_round": True, "is_quick": False, "json": None, "readme": False, "part": None}
    return Session(Namespace(seconds=seconds, rounds=rounds, **{**usual, **options}))


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class NotedEnv(CountingEnv):
    """Has episodes of three steps and records its calls."""

    def __init__(self) -> None:
        super().__init__(length=3)
        self.calls: list[str] = []

    def reset(self, **arguments: Any) -> Any:
        self.calls.append("reset")
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self.calls.append("step")
        return super().step(action)


COUNTING = Workload("counting", NotedEnv)


class FakeContender(Contender):
    """Each step advances the clock by ``step_seconds``, and each call is appended to ``log``."""

    clock: ClassVar[FakeClock]
    log: ClassVar[list[tuple[str, str]]]
    step_seconds: ClassVar[float] = 0.25
    fails_at: ClassVar[str] = ""
    failure: ClassVar[BaseException] = RuntimeError("out of hay\nand out of water")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._note("build")

    def reset(self, seed: int) -> None:
        self._note("reset")
        self.clock.now += 2.0

    def begin_turn(self) -> None:
        self._note("begin turn")

    def step(self, actions: Any) -> int:
        self._note("step")
        self.clock.now += self.step_seconds
        return self.plan.num_envs

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.log.append((self.name, what))
        if self.fails_at == what:
            raise self.failure


def fakes(clock: FakeClock, step_seconds: dict[str, float]) -> list[type[FakeContender]]:
    """Returns one fake contender for each name. They share a clock and a log."""
    log: list[tuple[str, str]] = []
    return [
        type(name, (FakeContender,), {"name": name, "clock": clock, "log": log, "step_seconds": seconds})
        for name, seconds in step_seconds.items()
    ]


def entry(name: str, rates: Sequence[float] = (), **fields: Any) -> Entry:
    """Returns an entry with turns of one second at these rates."""
    return Entry(name, turns=[Turn(int(rate), 1, 1.0) for rate in rates], **fields)


def result(*entries: Entry) -> Result:
    return Result(Plan(COUNTING, 64, 2), 3, 3.0, entries, cores=2)


def sample_result() -> Result:
    """Returns a result with a good row, a slow peer, and a failed contender."""
    return result(
        entry("plain loop", [100_000, 120_000, 110_000]),
        entry("remuda", [200_000, 210_000, 220_000], num_workers=2, startup_seconds=0.5),
        entry("slow", [1000, 1000, 1100], num_workers=64),
        entry("broken", error="ValueError: no [hay] left"),
    )


def busy_result() -> Result:
    """Returns a result of a machine on which other programs took a fifth of the CPU."""
    turns = [Turn(1000, 1, seconds=1.0, others_cpu_seconds=0.2 * usable_cpus())]
    return result(Entry("plain loop", turns=turns), Entry("remuda", turns=turns))
