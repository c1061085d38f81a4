"""PoolStats: the figures of a pool, with a verdict, a table and scalars made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, TypeAlias

from remuda._engine.stats.durations import Durations, span
from remuda._engine.stats.snapshot import Snapshot
from remuda._engine.stats.verdict import Verdict, judge

_SCALARS = (
    *("seconds", "steps", "steps_per_second", "batches", "episodes", "faults", "restarts"),
    *("env_seconds", "cpu_seconds", "queued_seconds"),
)
_MOST_ROWS = 12  # the most rows of a table. It shows the slowest envs or workers first.

_Columns: TypeAlias = Mapping[str, Callable[[Any], str]]
"""The headings of a table, and what each column shows of a record."""

_WORKERS: _Columns = {
    "worker": lambda worker: str(worker.index),
    "pid": lambda worker: "" if worker.pid is None else str(worker.pid),
    "envs": lambda worker: _range(worker.env_ids),
    "steps": lambda worker: str(worker.steps),
    "busy": lambda worker: _share(worker.busy, worker.seconds),
    "CPU": lambda worker: f"{worker.cpu_share:.0%}",
    "queued": lambda worker: _share(worker.queued, worker.seconds),
    "idle p50": lambda worker: span(worker.idle.p50),
    "memory": lambda worker: "" if worker.memory is None else f"{worker.memory / 2**20:.0f} MB",
    "restarts": lambda worker: str(worker.restarts),
}
_ENVS: _Columns = {
    "env": lambda env: str(env.env_id),
    "worker": lambda env: str(env.worker),
    "steps": lambda env: str(env.steps),
    "step": lambda env: _span(env.step, env.step.mean),
    "p50": lambda env: _span(env.step, env.step.p50),
    "p99": lambda env: _span(env.step, env.step.p99),
    "max": lambda env: _span(env.step, env.step.max),
    "reset": lambda env: _span(env.reset, env.reset.mean),
    "episodes": lambda env: str(env.episodes),
    "return": lambda env: _mean(env.returns),
    "length": lambda env: _mean(env.lengths),
    "faults": lambda env: str(env.faults),
}


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
        """Returns a text: a summary, the tables of workers and envs, and the verdict."""
        workers = sorted(self.workers, key=lambda worker: -worker.busy)
        envs = sorted(self.envs, key=lambda env: -env.step.mean)
        tables = [_drawn("workers", workers, _WORKERS), _drawn("envs", envs, _ENVS)]
        return "\n\n".join([_summary(self), *tables, self.verdict.text])

    def __repr__(self) -> str:
        return f"<PoolStats: {self.steps} steps in {self.seconds:.3g} s, {self.verdict.cause}>"


# -- the table ---------------------------------------------------------------------------------------------


def _drawn(title: str, records: Sequence[Any], columns: _Columns) -> str:
    """Returns a table of the first records as text, under a title and a line of headings."""
    shown = records[:_MOST_ROWS]
    if len(shown) < len(records):
        title += f": {len(shown)} of {len(records)}, the slowest"
    lines = [list(columns), *([show(record) for show in columns.values()] for record in shown)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join(f"{text:>{width}}" for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([title, *rows])


def _summary(stats: PoolStats) -> str:
    """Returns a text that sums up the pool's work and the use of the caller's time."""
    setup, caller = stats.setup, stats.caller
    spares = f" and {setup.spares} spares" if setup.spares else ""
    whole = max(stats.seconds, 1e-9)
    unpickles = f"unpickles infos {caller.unpickling / whole:.0%}, " if caller.unpickling else ""
    return (
        f"{setup.num_envs} envs{spares} in {setup.num_workers} {setup.backend} workers on {stats.cores} cores: "
        f"{stats.steps} steps, {stats.steps_per_second:,.0f} a second; {stats.episodes} episodes, "
        f"{stats.faults} faults\nyour program, {stats.seconds:.3g} s and {stats.batches} batches: waits for envs "
        f"{caller.waiting / whole:.0%}, gathers {caller.gathering / whole:.0%}, {unpickles}"
        f"own code {caller.own / whole:.0%}"
    )


# -- cells -------------------------------------------------------------------------------------------------


def _range(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"


def _share(seconds: float, whole: float) -> str:
    return f"{seconds / max(whole, 1e-9):.0%}"


def _span(durations: Durations, seconds: float) -> str:
    """Returns `seconds`, a figure of `durations`, as text; "" if `durations` has no events."""
    return span(seconds) if durations.count else ""


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.4g}" if values else ""
