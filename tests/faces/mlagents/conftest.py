"""Managers that are closed at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mlagents_face_envs import manager  # first of all, because it imports ML-Agents without its warnings


@pytest.fixture
def begun() -> Iterator[Callable[..., Any]]:
    """Returns a function that makes a manager and resets its envs. The managers are closed at the end of the test."""
    made: list[Any] = []

    def begin(*args: Any, **options: Any) -> Any:
        made.append(manager(*args, **options))
        made[-1].reset({})
        return made[-1]

    yield begin
    for one in made:
        one.close()
