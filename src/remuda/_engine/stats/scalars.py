"""The figures of a snapshot under flat names, as experiment trackers take them."""

from __future__ import annotations

from statistics import fmean

from remuda._engine.stats.durations import Durations
from remuda._engine.stats.snapshot import Snapshot


def scalars(stats: Snapshot, prefix: str) -> dict[str, float]:
    """See `Snapshot.scalars`."""
    caller = stats.caller
    told: dict[str, float] = {
        "seconds": stats.seconds,
        "steps": stats.steps,
        "steps_per_second": stats.steps_per_second,
        "batches": stats.batches,
        "episodes": stats.episodes,
        "faults": stats.faults,
        "restarts": stats.restarts,
        "env_seconds": stats.env_seconds,
        "cpu_seconds": stats.cpu_seconds,
        "queued_seconds": stats.queued_seconds,
    }
    if stats.seconds > 0:
        shares = {"waiting": caller.waiting, "gathering": caller.gathering, "own_code": caller.own}
        shares |= {"unpickling": caller.unpickling} if caller.unpickling else {}
        for name, seconds in shares.items():
            told[f"caller/{name}_share"] = seconds / stats.seconds
    if memory := sum(worker.memory or 0 for worker in stats.workers):
        told["worker_memory_bytes"] = memory
    if stats.returns:
        told["episode_return_mean"], told["episode_length_mean"] = fmean(stats.returns), fmean(stats.lengths)
    idle = sum((worker.idle for worker in stats.workers), Durations())
    for name, durations in (("step", stats.step), ("reset", stats.reset), ("idle", idle)):
        if durations.count:
            told[f"{name}/mean_seconds"], told[f"{name}/max_seconds"] = durations.mean, durations.max
            told[f"{name}/p50_seconds"], told[f"{name}/p99_seconds"] = durations.p50, durations.p99
    return {f"{prefix}{name}": float(value) for name, value in told.items()}
