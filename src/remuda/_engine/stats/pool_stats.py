"""PoolStats: the figures of a pool, with their verdict, their table and their scalars."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from remuda._engine.stats.durations import Durations
from remuda._engine.stats.snapshot import Snapshot
from remuda._engine.stats.table import table
from remuda._engine.stats.verdict import Verdict, judge

_SCALARS = (
    *("seconds", "steps", "steps_per_second", "batches", "episodes", "faults", "restarts"),
    *("env_seconds", "cpu_seconds", "queued_seconds"),
)


@dataclass(frozen=True, eq=False, repr=False)
class PoolStats(Snapshot):
    """The figures of a pool: a snapshot, which never changes. All times are in seconds.

        >>> import gymnasium, remuda
        >>> with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 8, num_workers=2) as pool:
        ...     batch = pool.reset(seed=0)
        ...     before = pool.stats()
        ...     for _ in range(100):
        ...         batch = pool.step([0, 1] * 4)
        ...     stats = pool.stats() - before
        >>> stats.batches, len(stats.envs), len(stats.workers)
        (100, 8, 2)

    `print(stats)` is a table, `stats.verdict` names what holds the throughput back, and `later - earlier` is what was
    done in between.

    Attributes:
        seconds: On the wall, since the pool was first sent anything; of a difference, between the two.
        envs: An `EnvStats` for each env, spares included.
        workers: A `WorkerStats` for each worker.
        caller: Where your program's time went: a `CallerStats`.
        machine: What the cores were busy with: a `MachineStats`.
        setup: How the pool was made.
        taken: When the snapshot was taken, in seconds of CLOCK_MONOTONIC; of a difference, the later one.
    """

    @cached_property
    def verdict(self) -> Verdict:
        """The cause that holds the throughput back, in one line, and what to change."""
        return judge(self)

    def scalars(self, prefix: str = "remuda/") -> dict[str, float]:
        """The most telling figures, flat, for wandb, TensorBoard or MLflow.

        Args:
            prefix: What each name begins with.

        Returns: By name, e.g. ``remuda/steps_per_second``. Means and quantiles of what has not happened are left out.
        """
        found: dict[str, float] = {name: getattr(self, name) for name in _SCALARS}
        parts = {"waiting": self.caller.waiting, "gathering": self.caller.gathering, "own_code": self.caller.own}
        if self.caller.unpickling:
            parts["unpickling"] = self.caller.unpickling
        if self.seconds > 0:
            found |= {f"caller/{name}_share": seconds / self.seconds for name, seconds in parts.items()}
        if memory := sum(worker.memory or 0 for worker in self.workers):
            found["worker_memory_bytes"] = memory
        if self.returns:
            found["episode_return_mean"], found["episode_length_mean"] = fmean(self.returns), fmean(self.lengths)
        idle = sum((worker.idle for worker in self.workers), Durations())
        for name, durations in (("step", self.step), ("reset", self.reset), ("idle", idle)):
            if durations.count:
                found |= {f"{name}/{one}_seconds": getattr(durations, one) for one in ("mean", "max", "p50", "p99")}
        return {f"{prefix}{name}": float(value) for name, value in found.items()}

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return f"<PoolStats: {self.steps} steps in {self.seconds:.3g} s, {self.verdict.cause}>"
