"""Log records of workers, as they arrive in the pool's process.

`relay/conftest.py` imports the fixtures `log_records` and `reaction` from here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest


class Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log_records(caplog: pytest.LogCaptureFixture) -> Iterator[list[Any]]:
    """Yields the log records handled in this process, from DEBUG up."""
    caplog.set_level(logging.DEBUG)
    # OpenGL logs its import, which the end of an earlier test's env can cause here
    caplog.set_level(logging.WARNING, "OpenGL")
    collector = Collector()
    logging.root.addHandler(collector)
    yield collector.records
    logging.root.removeHandler(collector)


class Reaction(logging.Handler):
    """Calls a function at its first record."""

    def __init__(self, react: Callable[[], Any]) -> None:
        super().__init__()
        self._react: Callable[[], Any] | None = react

    def emit(self, record: logging.LogRecord) -> None:
        react, self._react = self._react, None
        if react is not None:
            react()


@pytest.fixture
def reaction() -> Iterator[Callable[[Callable[[], Any]], None]]:
    target = logging.getLogger("test.env")
    before = target.handlers[:], target.level

    def react(function: Callable[[], Any]) -> None:
        target.setLevel(logging.INFO)
        target.addHandler(Reaction(function))

    yield react
    target.handlers[:], target.level = before


def log(text: str) -> Callable[..., None]:
    """Returns a hook that logs. It is pickled by value, because a worker cannot import this module."""

    def hook(*_: Any) -> None:
        import logging

        logging.getLogger("test.env").info(text)

    return hook


def texts(records: list[Any]) -> list[str]:
    return [record.getMessage() for record in records if record.name == "test.env"]
