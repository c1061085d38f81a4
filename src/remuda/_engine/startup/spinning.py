"""Decides who of a pool may spin while waiting, by the cores there are."""

from __future__ import annotations

from remuda._engine.options.pool_options import BackendName
from remuda._wire.layout import Spinning

# Somebody who waits for longer than this does not miss the time of a wake-up.
_LIMIT_NS = 4_000_000


def spinning_for(backend: BackendName, num_workers: int, max_concurrency: int | None, cores: int) -> Spinning:
    """What the pool's caller and its workers may do with `cores` that are theirs as a whole.

    The caller has a core, at which it computes or waits. Workers may spin where each has one, too: where these are as
    many as all cores, one of them has to do with the caller's. The caller may spin where its core is not needed by
    those workers that may be at work.
    """
    if backend != "process":  # threads take the interpreter's lock from each other as it is
        return Spinning()
    at_work = num_workers if max_concurrency is None else min(num_workers, max_concurrency)
    return Spinning(
        worker_ns=_LIMIT_NS if num_workers <= cores and cores > 1 else 0,
        pool_ns=_LIMIT_NS if at_work < cores else 0,
        one_sleeps=num_workers == cores,
    )
