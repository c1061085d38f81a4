"""The worth of the verdict: throughput of pools with a planted cause, before and after the verdict's code is pasted.

    python benchmarks/verdict.py [--only "slow env,policy"] [--seconds 3] [--readme]

The usual loop steps each pool for some seconds, and the pool is asked for its verdict. Then `verdict.code` runs as it
is, in the place of that loop or of the line that made the pool. Envs and policies sleep if the cause is not about
cores, so those figures depend little on the machine. Programs that keep the machine busy are ended, as the verdict
advises.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from harness.envs import NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.sleepers import SleepingEnv, Sleeps
from harness.tables import table

import remuda
from remuda import PoolStats

MS = 1e-3


SLOW_RESETS = Sleeps("", (1 * MS,) * 100, reset=100 * MS, episode_steps=100)


class Burner(NullEnv):
    """Keeps a core busy for half a millisecond of CPU time a step."""

    def step(self, action: Any) -> Any:
        end = time.thread_time() + 0.5 * MS
        while time.thread_time() < end:
            pass
        return super().step(action)


def sleepers(count: int, *steps: float) -> list[Callable[[], Any]]:
    """Envs that deal their sleeps from these, in seconds."""
    return [functools.partial(SleepingEnv, Sleeps("", steps))] * count


@dataclass(frozen=True)
class Case:
    """A planted cause, which the verdict is to name."""

    cause: str
    planted: str
    env_fns: list[Callable[[], Any]]
    options: dict[str, Any]
    policy: float = 0.0
    """Seconds that the policy sleeps a call."""
    an_env: float = 0.0
    """Seconds that the policy sleeps for each env."""
    burners: int = 0
    """Programs that keep a core busy each, and are ended after the verdict."""


CASES = (
    Case(
        "slow env",
        "16 envs of 1 ms a step, but one of 10 ms",
        [*sleepers(15, 1 * MS), *sleepers(1, 10 * MS)],
        {"num_workers": 16},
    ),
    Case(
        "stragglers",
        "16 envs of 1 ms a step, one step in ten 20 ms",
        sleepers(16, *[1 * MS] * 9, 20 * MS),
        {"num_workers": 16},
    ),
    Case(
        "slow resets",
        "8 envs of 1 ms a step, resets of 100 ms, episodes of 100 steps",
        [functools.partial(SleepingEnv, SLOW_RESETS)] * 8,
        {"num_workers": 8},
    ),
    Case("policy", "8 envs of 1 ms a step, a policy of 20 ms a call", sleepers(8, 1 * MS), {"num_workers": 8}, 20 * MS),
    Case(
        "env step",
        "8 envs of 5 ms a step, a policy of 0.6 ms an env",
        sleepers(8, 5 * MS),
        {"num_workers": 8},
        an_env=0.6 * MS,
    ),
    Case(
        "too many workers",
        "64 CartPoles in 64 workers",
        [lambda: gymnasium.make("CartPole-v1")] * 64,
        {"num_workers": 64},
    ),
    Case("too few workers", "8 envs of 5 ms a step in one worker", sleepers(8, 5 * MS), {"num_workers": 1}),
    Case(
        "busy machine",
        "as many programs as cores besides, 8 envs of 0.5 ms of CPU",
        [Burner] * 8,
        {"num_workers": 2},
        burners=2,
    ),
)


@dataclass(frozen=True)
class Measured:
    """The verdict's cause and code, and env steps a second before and after."""

    cause: str
    code: str
    before: float
    after: float


class OverError(Exception):
    """The time of a loop is over."""


class Policy:
    """Chooses any action, takes its time, and counts the rows of observations."""

    def __init__(self, case: Case) -> None:
        self._case, self.rows, self._end = case, 0, float("inf")
        self._began = 0.0

    def begin(self, seconds: float) -> None:
        self.rows, self._began = 0, time.perf_counter()
        self._end = self._began + seconds

    @property
    def rate(self) -> float:
        return self.rows / (time.perf_counter() - self._began)

    def __call__(self, obs: Any) -> Any:
        if time.perf_counter() >= self._end:
            raise OverError
        if seconds := self._case.policy + self._case.an_env * len(obs):
            time.sleep(seconds)
        self.rows += len(obs)
        return np.zeros(len(obs), int)


def usual_loop(pool: remuda.Pool, policy: Policy, seconds: float) -> tuple[float, PoolStats]:
    """Steps for a third of the time to warm up, and then for all of it. Returns env steps a second and the stats."""
    batch = pool.reset(seed=0)
    for part in (seconds / 3, seconds):
        earlier = pool.stats()
        policy.begin(part)
        try:
            while True:
                batch = pool.step(policy(batch.obs))
        except OverError:
            rate = policy.rate
    return rate, pool.stats() - earlier


def pasted(code: str, case: Case, pool: remuda.Pool, policy: Policy, seconds: float) -> float:
    """Env steps a second with the verdict's code, which makes the pool or steps it."""
    namespace: dict[str, Any] = {"remuda": remuda, "env_fns": case.env_fns, "policy": policy, "pool": pool}
    if code.startswith("pool = "):
        pool.close()
        exec(code, namespace)
        with namespace["pool"] as made:
            return usual_loop(made, policy, seconds)[0]
    namespace["batch"] = pool.reset(seed=0)
    compiled = compile(code, "verdict", "exec")
    policy.begin(seconds)
    try:
        while True:
            exec(compiled, namespace)
    except OverError:
        return policy.rate


def measure(case: Case, seconds: float) -> Measured:
    policy = Policy(case)
    with ExitStack() as stack:
        burners = stack.enter_context(burning(case.burners))
        pool = stack.enter_context(remuda.Pool(case.env_fns, advise=False, **case.options))
        before, stats = usual_loop(pool, policy, seconds)
        verdict = stats.verdict
        if case.burners:
            end(burners)
            after, _ = usual_loop(pool, policy, seconds)
        else:
            after = pasted(verdict.code, case, pool, policy, seconds) if verdict.code else before
    return Measured(verdict.cause, verdict.code or "", before, after)


@contextmanager
def burning(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield programs
    finally:
        end(programs)


def end(programs: list[subprocess.Popen[bytes]]) -> None:
    for program in programs:
        program.kill()
        program.wait()


def row(case: Case, found: Measured) -> list[str]:
    first, *others = found.code.splitlines() or [""]
    advice = "end the other programs" if case.burners else first + (" ..." if others else "")
    rates = [f"{found.before:,.0f}", f"{found.after:,.0f}", f"{found.after / found.before:.2f}"]
    return [case.planted, found.cause, f"`{advice}`", *rates]


def main() -> None:
    options = parse_options(
        __doc__,
        workloads=[case.cause for case in CASES],
        rounds=1,
        json=False,
        more=lambda parser: parser.add_argument("--seconds", type=float, default=3.0, help="of each loop (default: 3)"),
    )
    session = Session(options)
    cases = (case for case in CASES if case.cause in options.only)
    found = session.measured(
        cases, lambda case: session.rounds(case.cause, {"": lambda: measure(case, options.seconds)})[""][-1]
    )
    columns = ("planted", "verdict", "pasted", "env steps/s before", "after", "times")
    session.publish("verdict", table(columns, (row(*one) for one in found)))


if __name__ == "__main__":
    main()
