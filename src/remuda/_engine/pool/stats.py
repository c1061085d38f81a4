"""What a pool has done, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolStats:
    """A snapshot; all times in seconds, summed since the pool started.

    Attributes:
        steps: Env steps done by the workers, resets counted.
        batches: Batches received.
        env_seconds: Wall time inside the envs, summed over workers.
        cpu_seconds: CPU time of the workers since their envs were built, spinning not counted. Of each worker, the last
            millisecond that it was at work may still be missing.
        waited_seconds: Time the pool's caller spent waiting for results.
        steps_by_worker: `steps`, worker by worker.
        restarts: Worker processes that were started in the place of others, after faults and to renew envs.
    """

    steps: int
    batches: int
    env_seconds: float
    cpu_seconds: float
    waited_seconds: float
    steps_by_worker: tuple[int, ...]
    restarts: int = 0

    @property
    def step_seconds(self) -> float:
        """The mean wall time of a step (or reset) inside the env."""
        return self.env_seconds / self.steps if self.steps else 0.0
