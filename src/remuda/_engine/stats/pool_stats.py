"""PoolStats: the figures of a pool, with their verdict, their table and their scalars."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from remuda._engine.stats.scalars import scalars
from remuda._engine.stats.snapshot import Snapshot
from remuda._engine.stats.table import table
from remuda._engine.stats.verdict import Verdict, judge


@dataclass(frozen=True, eq=False, repr=False)
class PoolStats(Snapshot):
    """What a pool has done, in figures; a snapshot, which never changes. All times are in seconds.

        >>> import gymnasium, remuda
        >>> with remuda.Pool([lambda: gymnasium.make("CartPole-v1")] * 8, num_workers=2) as pool:
        ...     batch = pool.reset(seed=0)
        ...     before = pool.stats()
        ...     for _ in range(100):
        ...         batch = pool.step([0, 1] * 4)
        ...     stats = pool.stats() - before
        >>> stats.batches, len(stats.envs), len(stats.workers)
        (100, 8, 2)

    `print(stats)` is a table, `stats.verdict` says what holds the throughput back, and `later - earlier` is what was
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
        """What holds the throughput back, in one line, and what to change."""
        return judge(self)

    def scalars(self, prefix: str = "remuda/") -> dict[str, float]:
        """The most telling figures, flat, for wandb, TensorBoard or MLflow.

        Args:
            prefix: What each name begins with.

        Returns: By name, e.g. ``remuda/steps_per_second``. Means and quantiles of what has not happened are left out.
        """
        return scalars(self, prefix)

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return f"<PoolStats: {self.steps} steps in {self.seconds:.3g} s, {self.verdict.cause}>"
