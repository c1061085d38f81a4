"""What workers log, as tests hear it in the pool's process.

`relay/conftest.py` takes the fixtures `heard` and `reaction` from here.
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
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[list[Any]]:
    """Yields the log records handled in this process, from DEBUG up."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "OpenGL")  # logs its import, when the env of an earlier test is collected here
    collector = Collector()
    logging.root.addHandler(collector)
    yield collector.records
    logging.root.removeHandler(collector)


class Reaction(logging.Handler):
    """Does something at the first record that it is given."""

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

    def react(what: Callable[[], Any]) -> None:
        target.setLevel(logging.INFO)
        target.addHandler(Reaction(what))

    yield react
    target.handlers[:], target.level = before


def log(text: str) -> Callable[..., None]:
    """A hook that logs; by value, for a worker cannot import this module."""

    def hook(*_: Any) -> None:
        import logging

        logging.getLogger("test.env").info(text)

    return hook


def texts(records: list[Any]) -> list[str]:
    return [record.getMessage() for record in records if record.name == "test.env"]
