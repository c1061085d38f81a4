"""Tests the verdict: measures the speed of pools that are slow for a known cause, before and after its code runs.

    python benchmarks/verdict.py [--only "slow env,policy"] [--seconds 3] [--readme]

The usual loop steps each pool for some seconds, and `pool.stats()` returns the verdict. Then `verdict.code` runs
unchanged, in place of that loop or of the line that made the pool. Envs and policies sleep if the cause is not about
cores, so those figures depend little on the machine. For "busy machine" the script ends the programs that keep the
machine busy, as the verdict advises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from harness.envs import NullEnv
from harness.options import parse_options
from harness.quiet import busy_processes
from harness.session import Session
from harness.sleepers import SleepingEnv, Sleeps
from harness.tables import table

import remuda
from remuda import PoolStats

MS = 1e-3


class Burner(NullEnv):
    """An env that uses half a millisecond of CPU time in each step."""

    def step(self, action: Any) -> Any:
        end = time.thread_time() + 0.5 * MS
        while time.thread_time() < end:
            pass
        return super().step(action)


def sleepers(count: int, *steps: float) -> list[Callable[[], Any]]:
    """Returns the factories of ``count`` envs that sleep in each step. ``steps``: the durations, in seconds."""
    return [partial(SleepingEnv, Sleeps("", steps))] * count


@dataclass(frozen=True)
class Case:
    """A pool that is slow for a known cause, which the verdict must name."""

    cause: str
    planted: str
    env_fns: Sequence[Callable[[], Any]]
    num_workers: int
    policy: float = 0.0
    """The seconds that the policy sleeps in each call."""
    an_env: float = 0.0
    """The additional seconds that the policy sleeps for each env."""
    busy: int = 0
    """The number of programs that keep a core busy each, until the verdict."""


CARTPOLES = [partial(gymnasium.make, "CartPole-v1")] * 64
ONE_SLOW = [*sleepers(15, 1 * MS), *sleepers(1, 10 * MS)]
STRAGGLERS = sleepers(16, *[1 * MS] * 9, 20 * MS)
SLOW_RESETS = [partial(SleepingEnv, Sleeps("", (1 * MS,) * 100, reset=100 * MS, episode_steps=100))] * 8

CASES = (
    Case("slow env", "16 envs of 1 ms a step, but one of 10 ms", ONE_SLOW, 16),
    Case("stragglers", "16 envs of 1 ms a step, one step in ten 20 ms", STRAGGLERS, 16),
    Case("slow resets", "8 envs of 1 ms a step, resets of 100 ms, episodes of 100 steps", SLOW_RESETS, 8),
    Case("policy", "8 envs of 1 ms a step, a policy of 20 ms a call", sleepers(8, 1 * MS), 8, policy=20 * MS),
    Case("env step", "8 envs of 5 ms a step, a policy of 0.6 ms an env", sleepers(8, 5 * MS), 8, an_env=0.6 * MS),
    Case("too many workers", "64 CartPoles in 64 workers", CARTPOLES, 64),
    Case("too few workers", "8 envs of 5 ms a step in one worker", sleepers(8, 5 * MS), 1),
    Case("busy machine", "as many programs as cores besides, 8 envs of 0.5 ms of CPU", [Burner] * 8, 2, busy=2),
)


class OverError(Exception):
    """Raised by the policy to end a loop when its time is over."""


class Policy:
    """A policy that sleeps as long as the case demands, returns zeros, and counts the rows of observations."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.begin(float("inf"))

    def begin(self, seconds: float) -> None:
        """Starts a new count of rows. A call of the policy after ``seconds`` raises `OverError`."""
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
    """Steps for ``seconds / 3`` to warm up, and then for ``seconds``. Returns env steps a second and the stats."""
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
    """Runs the verdict's code, which makes a new pool or steps ``pool``. Returns env steps a second."""
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


def measure(case: Case, seconds: float) -> list[str]:
    """Measures a case before and after the verdict's advice. Returns its table row."""
    policy = Policy(case)
    with remuda.Pool(case.env_fns, num_workers=case.num_workers, advise=False) as pool:
        with busy_processes(case.busy):
            before, stats = usual_loop(pool, policy, seconds)
        cause, code = stats.verdict.cause, stats.verdict.code or ""
        if "pool" in code and not case.busy:  # code without `pool` belongs in the env's file, and is not run
            after = pasted(code, case, pool, policy, seconds)
        else:
            after = usual_loop(pool, policy, seconds)[0]
    first, *others = code.splitlines() or [""]
    advice = "end the other programs" if case.busy else first + (" ..." if others else "")
    return [case.planted, cause, f"`{advice}`", f"{before:,.0f}", f"{after:,.0f}", f"{after / before:.2f}"]


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
        cases, lambda case: session.rounds(case.cause, {"": partial(measure, case, options.seconds)})
    )
    columns = ("planted", "verdict", "pasted", "env steps/s before", "after", "times")
    session.publish("verdict", table(columns, (row for _, rounds in found for row in rounds[""])))


if __name__ == "__main__":
    main()
