"""The logger `remuda`. Its records have attributes `worker` and `env`, for log formats. They are None if not known."""

from __future__ import annotations

import logging
import sys
import traceback

logger = logging.getLogger("remuda")


class _Complete(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        for name in ("worker", "env"):
            record.__dict__.setdefault(name, None)
        return True


logger.addFilter(_Complete())


def print_error_of_handler() -> None:
    """Prints the exception of a log handler that is being handled, as `logging` prints those of its own handlers."""
    if logging.raiseExceptions and sys.stderr is not None:
        traceback.print_exc()
