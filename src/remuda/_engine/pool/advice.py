"""Logs once that another number of workers would be much faster."""

from __future__ import annotations

from remuda._engine.stats.pool_stats import PoolStats
from remuda._engine.stats.verdict import workers_verdict
from remuda._relay.log import logger

_WORTH_SAYING = 0.5  # of the time, the caller's own included


def advice(stats: PoolStats) -> str | None:
    """Returns a sentence about the number of workers; None unless another number could be several times faster."""
    verdict = workers_verdict(stats)
    if verdict is None or verdict.saves < _WORTH_SAYING:
        return None
    auto = "" if stats.setup.keeps_apart else "num_workers='auto' measures and chooses; "  # it could choose fewer
    return f"remuda: {verdict.text}. ({auto}advise=False keeps this quiet, and pool.stats() tells more.)"


class Adviser:
    """Logs at most one text in the life of this process, however many pools it has."""

    def __init__(self) -> None:
        self.has_spoken = False

    def say(self, text: str) -> None:
        if not self.has_spoken:
            self.has_spoken = True
            logger.warning("%s", text)


ADVISER = Adviser()
