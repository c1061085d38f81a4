"""Stands in the place of an env that could not be built anew."""

from __future__ import annotations

from typing import Any, NoReturn

from remuda.errors import InvalidEnvError


class Missing:
    """In the place of an env that could not be built anew: the old one was closed, and is not to be used again."""

    def __init__(self, slot: int) -> None:
        self.slot = slot

    def reset(self, **_: Any) -> NoReturn:
        raise InvalidEnvError(f"env {self.slot} could not be built anew")

    def step(self, _: Any) -> NoReturn:
        self.reset()

    def close(self) -> None:
        pass
