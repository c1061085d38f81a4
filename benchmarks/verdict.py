"""What the verdict is worth: throughput before, and after its code was pasted, of pools with something planted in them.

    python benchmarks/verdict.py [--only "slow env,policy"] [--seconds 3] [--readme]

Each pool is stepped by the usual loop for some seconds, and asked for its verdict. What `verdict.code` says is then
run as it is, in the place of that loop, or of what made the pool. Envs and policies sleep where it is not about cores,
so that those figures depend little on the machine. Where a machine is busy, what was planted is ended, as the verdict
says.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from script import names, publish_lines
from tables import head, row

import remuda
from remuda import PoolStats

MS = 1e-3


class Sleeper(gymnasium.Env[Any, Any]):
    """Waits for a game server, so to speak; now and then for longer. The first reset takes no time."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2)

    def __init__(
        self, step: float, reset: float = 0.0, length: int = 1_000_000, seldom: float = 0.0, begin: int = 0
    ) -> None:
        """Seconds of a step, of a reset, and of a step in ten; the first episode begins at step `begin`."""
        self._step, self._reset, self._length, self._seldom, self._at = step, reset, length, seldom, begin
        self._obs, self._begin, self._episodes = np.zeros(4, np.float32), begin, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._at = 0 if self._episodes else self._begin
        if self._episodes:
            time.sleep(self._reset)
        self._episodes += 1
        return self._obs, {}

    def step(self, action: Any) -> Any:
        is_slow = self._seldom and self.np_random.random() < 0.1
        time.sleep(self._seldom if is_slow else self._step)
        self._at += 1
        return self._obs, 1.0, False, self._at >= self._length, {}


class Burner(Sleeper):
    """The same, on a core."""

    def step(self, action: Any) -> Any:
        end = time.thread_time() + self._step
        while time.thread_time() < end:
            pass
        return self._obs, 1.0, False, False, {}


def sleepers(count: int, *args: Any, **kwargs: Any) -> list[Callable[[], Any]]:
    return [lambda: Sleeper(*args, **kwargs)] * count


@dataclass(frozen=True)
class Case:
    """What is planted, and what the verdict is to name."""

    cause: str
    planted: str
    env_fns: list[Callable[[], Any]]
    options: dict[str, Any]
    policy: float = 0.0
    """Seconds it sleeps a call."""
    an_env: float = 0.0
    """Seconds it sleeps for each env."""
    burners: int = 0
    """Other programs that each keep a core busy, until the verdict says that they should not."""


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
        sleepers(16, 1 * MS, seldom=20 * MS),
        {"num_workers": 16},
    ),
    Case(
        "slow resets",
        "8 envs of 1 ms a step, resets of 100 ms, episodes of 100 steps",
        [lambda begin=i: Sleeper(1 * MS, 100 * MS, 100, begin=12 * begin) for i in range(8)],  # type: ignore[misc]
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
        [lambda: Burner(0.5 * MS)] * 8,
        {"num_workers": 2},
        burners=2,
    ),
)


class OverError(Exception):
    """Time is up."""


class Policy:
    """Chooses any action, takes its time, and counts what it was shown."""

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
    """Env steps a second, and what the pool tells of that time; the beginning of it is to warm up."""
    batch = pool.reset()
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
    """Env steps a second with what the verdict says, be it how the pool is made or how it is stepped."""
    namespace: dict[str, Any] = {"remuda": remuda, "env_fns": case.env_fns, "policy": policy, "pool": pool}
    if code.startswith("pool = "):
        pool.close()
        exec(code, namespace)
        with namespace["pool"] as made:
            return usual_loop(made, policy, seconds)[0]
    namespace["batch"] = pool.reset()
    compiled = compile(code, "verdict", "exec")
    policy.begin(seconds)
    try:
        while True:
            exec(compiled, namespace)
    except OverError:
        return policy.rate


def measure(case: Case, seconds: float) -> list[str]:
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
            after = pasted(verdict.code or "", case, pool, policy, seconds) if verdict.code else before
    code = (verdict.code or "").splitlines()
    told = "end the other programs" if case.burners else code[0] + (" ..." if len(code) > 1 else "") if code else ""
    return [case.planted, verdict.cause, f"`{told}`", f"{before:,.0f}", f"{after:,.0f}", f"{after / before:.2f}"]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = [case.cause for case in CASES]
    parser.add_argument("--only", type=names, default=known, help=f"of {', '.join(known)}")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each loop (default: 3)")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    columns = ("planted", "verdict", "pasted", "env steps/s before", "after", "times")
    lines = list(head(columns))
    for case in CASES:
        if case.cause in options.only:
            lines.append(row(measure(case, options.seconds)))
            print(lines[-1], file=sys.stderr, flush=True)
    publish_lines("verdict", lines, options)


if __name__ == "__main__":
    main()
