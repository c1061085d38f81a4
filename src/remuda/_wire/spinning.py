"""Who may spin before sleeping: what the pool and its workers are told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spinning:
    """How long a pool and its workers may spin while they wait; by default not at all. See `core/ipc/spin_policy.hpp`.

    Attributes:
        worker_ns: Of a worker.
        pool_ns: Of the pool's caller.
        one_sleeps: Whether one of the workers leaves its core to the caller.
        heedless: Whether they do so whatever else wants their cores. Only for benchmarks, to compare with.
    """

    worker_ns: int = 0
    pool_ns: int = 0
    one_sleeps: bool = False
    heedless: bool = False
