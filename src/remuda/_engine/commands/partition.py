"""Divides the envs of a pool among its parts."""

from __future__ import annotations

from collections.abc import Sequence


class Division:
    """A token for a division of a pool. Only the owner of the division holds it."""


def divide(worker_of: Sequence[int], parts: int) -> list[list[int]]:
    """Gives each part an equal share of each worker's envs, neighbours together.

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
        # The parts with the fewest envs so far get the remainder.
        fewest = sorted(range(parts), key=lambda part: len(shares[part]))[: len(envs) % parts]
        first = 0
        for part in range(parts):
            end = first + len(envs) // parts + (part in fewest)
            shares[part] += envs[first:end]
            first = end
    return [sorted(share) for share in shares]
