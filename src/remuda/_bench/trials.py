"""The trials of `remuda tune`: each steps a pool of the env for a moment, with a substitute for the policy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from gymnasium.vector.utils import batch_space

from remuda import Part, Pool
from remuda._bench.env_exits import exits_raise
from remuda._bench.tuning import Outcome, Trial

_LEAST_BATCHES = 10


@dataclass(frozen=True)
class Policy:
    """A substitute for the user's policy. A call takes as long as the user's policy, but computes nothing.

    Attributes:
        seconds: The duration of a call.
        on_gpu: Whether the core is free during a call.
    """

    seconds: float = 0.0
    on_gpu: bool = False

    def __call__(self) -> None:
        """Sleeps, like a policy on a GPU, or keeps the core busy, like a policy on the CPU, for `seconds`."""
        if self.on_gpu:
            time.sleep(self.seconds)
            return
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass


class Trials:
    """Makes trials for an env: steps pools with it, and measures their speed.

    Attributes:
        seconds: The duration of each trial, without the start of its pool and the warm-up.
    """

    def __init__(self, make_env: Callable[[], gymnasium.Env[Any, Any]], policy: Policy, seconds: float) -> None:
        self._make_env, self._policy, self.seconds = make_env, policy, seconds

    def measure(self, trial: Trial) -> Outcome:
        """Makes a trial, and returns its outcome. Raises the pool's exceptions."""
        options: dict[str, Any] = {"advise": False}
        if trial.spares:
            options["spares"] = trial.spares
        elif trial.num_workers is None:
            options |= {"num_workers": "auto", "backend": "auto"}
        else:
            options["num_workers"] = trial.num_workers
        with exits_raise(), Pool([self._make_env] * (trial.num_envs + trial.spares), **options) as pool:
            self._play(pool, trial.parts, self.seconds / 4)
            before = pool.stats()
            rate = self._play(pool, trial.parts, self.seconds)
            stats = pool.stats() - before
            verdict = stats.verdict
            spares = re.search(r"spares=(\d+)", verdict.code or "") if verdict.cause == "slow resets" else None
            made = replace(trial, num_workers=pool.num_workers)
            cpu_seconds = (stats.machine.seconds or stats.seconds) * stats.machine.cores
            return Outcome(
                made,
                pool.backend,
                rate,
                int(spares[1]) if spares else 0,
                verdict.found,
                others=stats.machine.others(stats.seconds) / stats.machine.cores,
                own=stats.machine.own / cpu_seconds,
            )

    def _play(self, pool: Pool, parts: int, seconds: float) -> float:
        """Steps the pool like a training program, part by part, and returns env steps per second."""
        shares = pool.split(parts) if pool.num_envs >= parts else (pool,)
        actions = [_actions(pool, share) for share in shares]
        for share in shares:
            share.send_reset()
        steps, batches, begin = 0, 0, time.perf_counter()
        while time.perf_counter() - begin < seconds or batches < _LEAST_BATCHES:
            for share, fixed in zip(shares, actions, strict=True):
                batch = share.recv(order="slot")
                self._policy()
                share.send(fixed)
                steps += len(batch)
            batches += 1
        rate = steps / (time.perf_counter() - begin)
        for share in shares:
            share.discard()
        return rate


def _actions(pool: Pool, share: Part) -> Any:
    space = batch_space(pool.single_action_space, share.num_envs)
    space.seed(0)
    return space.sample()
