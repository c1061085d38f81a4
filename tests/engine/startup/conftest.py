"""A fixture of several tests of starts."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test fail if a worker process is started."""

    def must_not(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("remuda._backends.process.backend.ProcessBackend._start", must_not)
