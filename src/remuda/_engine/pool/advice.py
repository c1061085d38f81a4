"""Advises the caller, once, that another number of workers would be much faster."""

from __future__ import annotations

from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.verdict import workers_verdict
from remuda._relay.log import logger

_WORTH_SAYING = 0.5  # advice must save this share of the total time, the caller's code included


def advice(stats: PoolStats) -> str | None:
    """Returns a sentence about the number of workers; None unless another number would at least double the speed."""
    verdict = workers_verdict(stats)
    if verdict is None or verdict.saves < _WORTH_SAYING:
        return None
    # With `keeps_apart` each env needs a worker, so "auto", which may choose fewer, is not advised.
    auto = "" if stats.setup.keeps_apart else "num_workers='auto' measures and chooses; "
    return f"remuda: {verdict.text}. ({auto}log_advice=False keeps this quiet, and pool.stats() has the details.)"


_said: list[str] = []  # the advice that this process has logged


def say_once(text: str) -> None:
    """Logs advice, unless this process has logged any before, however many pools it has."""
    if not _said:
        _said.append(text)
        logger.warning("%s", text)
