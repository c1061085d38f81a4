"""The logger `remuda`. Its records have attributes `worker` and `env`, for log formats. They are None if not known."""

from __future__ import annotations

import logging

logger = logging.getLogger("remuda")


class _Complete(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        for name in ("worker", "env"):
            record.__dict__.setdefault(name, None)
        return True


logger.addFilter(_Complete())
