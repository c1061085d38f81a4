"""The modules that remuda uses have no patches of the program."""

from __future__ import annotations

import select
import time

import pytest

from remuda._system import originals


def test_patches_do_not_reach_the_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(select, "select", lambda *_: ([], [], []))
    assert originals.time.monotonic() > 0
    assert originals.select.select is not select.select
