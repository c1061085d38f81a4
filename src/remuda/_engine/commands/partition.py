"""How a pool's envs are dealt out to its parts."""

from __future__ import annotations

from collections.abc import Sequence


class Division:
    """Stands for what a pool is divided for, and is held by that alone."""


def divide(worker_of: Sequence[int], parts: int) -> list[list[int]]:
    """An equal share of each worker's envs for each part, neighbours together.

    Args:
        worker_of: The worker of each env.
        parts: How many there are to be; at most as many as envs.

    Returns: The envs of each part, ascending. None is empty, and no two differ by more than one env.
    """
    by_worker: dict[int, list[int]] = {}
    for env, worker in enumerate(worker_of):
        by_worker.setdefault(worker, []).append(env)
    shares: list[list[int]] = [[] for _ in range(parts)]
    for envs in by_worker.values():
        # Who has the fewest so far gets what is left over.
        fewest = sorted(range(parts), key=lambda part: len(shares[part]))[: len(envs) % parts]
        first = 0
        for part in range(parts):
            end = first + len(envs) // parts + (part in fewest)
            shares[part] += envs[first:end]
            first = end
    return [sorted(share) for share in shares]
