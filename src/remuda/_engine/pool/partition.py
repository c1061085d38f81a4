"""How a pool's envs are dealt out to its parts."""

from __future__ import annotations

from collections.abc import Sequence


def divide(worker_of: Sequence[int], parts: int, width: int = 1) -> list[list[int]]:
    """An equal share of each worker's envs for each part, neighbours together.

    Args:
        worker_of: The worker of each env.
        parts: How many there are to be; at most as many as envs, or as vector envs.
        width: So many neighbours are one vector env, and stay together.

    Returns: The envs of each part, ascending. None is empty, and no two differ by more than one (vector) env.
    """
    if width > 1:
        vectors = divide(worker_of[::width], parts)
        return [[vector * width + sub_env for vector in share for sub_env in range(width)] for share in vectors]
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
