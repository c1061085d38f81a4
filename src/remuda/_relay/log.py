"""The log `remuda`. All its records have `worker` and `env`, so formats may name them: None where it is about all."""

from __future__ import annotations

import logging

logger = logging.getLogger("remuda")


class _Complete(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        for name in ("worker", "env"):
            record.__dict__.setdefault(name, None)
        return True


logger.addFilter(_Complete())
