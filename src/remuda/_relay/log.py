"""The logger `remuda`. All its records have `worker` and `env` (None where they are about all) for formats to name."""

from __future__ import annotations

import logging

logger = logging.getLogger("remuda")


class _Complete(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        for name in ("worker", "env"):
            record.__dict__.setdefault(name, None)
        return True


logger.addFilter(_Complete())
