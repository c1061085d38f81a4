"""Divides the envs of a pool among its parts."""

from __future__ import annotations

from collections.abc import Sequence


def divide(worker_of: Sequence[int], parts: int) -> list[list[int]]:
    """Gives each part an equal share of each worker's envs. Envs with neighbouring ids stay together.

    Args:
        worker_of: The worker of each env.
        parts: The number of parts, at most that of envs.

    Returns: The envs of each part, ascending. No part is empty, and their sizes differ by one env at most.
    """
    by_worker: dict[int, list[int]] = {}
    for env, worker in enumerate(worker_of):
        by_worker.setdefault(worker, []).append(env)
    shares: list[list[int]] = [[] for _ in range(parts)]
    for envs in by_worker.values():
        # The parts that have the fewest envs so far get one of the remaining envs each.
        fewest = sorted(range(parts), key=lambda part: len(shares[part]))[: len(envs) % parts]
        first = 0
        for part in range(parts):
            end = first + len(envs) // parts + (part in fewest)
            shares[part] += envs[first:end]
            first = end
    return [sorted(share) for share in shares]
