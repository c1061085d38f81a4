"""PoolStats: the figures of a pool, with a verdict, a table and scalars made from them."""

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

    `print(stats)` shows a table, `stats.verdict` names the bottleneck, and `later - earlier` has the figures of the
    time in between.

    Attributes:
        seconds: Wall time since the first command to the pool; in a difference, between the two snapshots.
        envs: An `EnvStats` for each env, spares included.
        workers: A `WorkerStats` for each worker.
        caller: The use of your program's time: a `CallerStats`.
        cores: The number of cores that this program may use, within the limit of its control group.
        setup: How the pool was made.
        taken: The time of the snapshot, in seconds of CLOCK_MONOTONIC; in a difference, that of the later one.
    """

    @cached_property
    def verdict(self) -> Verdict:
        """The pool's bottleneck, and a change that helps."""
        return judge(self)

    def scalars(self, prefix: str = "remuda/") -> dict[str, float]:
        """Returns the most important figures as a flat dict, for wandb, TensorBoard or MLflow.

        Args:
            prefix: The prefix of each name.

        Returns: Figures by name, e.g. ``remuda/steps_per_second``. Means and quantiles of no events are left out.
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
