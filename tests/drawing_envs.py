"""Envs that draw through a context of their process, like OpenGL but without a library. Workers import this module.

A context is current for the whole process: the one that was created last. Its objects have numbers, which repeat in
each context.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from pool_envs import HookedEnv

_SHAPE = (8, 8, 3)
_TEXTURE = 1


class _Graphics:
    """The graphics library of a process."""

    current: dict[int, int] | None = None

    @classmethod
    def draw(cls, steps: int) -> Any:
        colour = 0 if cls.current is None else cls.current.get(_TEXTURE, 0)
        return np.full(_SHAPE, colour + steps, np.uint8)


class ContextEnv(HookedEnv):
    """Draws its tag and steps, if its context is current and whole. It makes its context current only when it is
    created.

    It refers to itself, and frees its objects when the garbage collector frees it, in whatever context is current then.
    """

    render_mode: str | None = "rgb_array"

    def __init__(self, tag: int = 0, length: int = 1_000_000, path: Path | None = None, **hooks: Any) -> None:
        self.path, self.itself = path, self
        self._note("built", tag)
        self.context = {_TEXTURE: 16 * (tag + 1)}
        _Graphics.current = self.context
        super().__init__(tag, length, **hooks)

    def render(self) -> Any:
        return _Graphics.draw(self.steps)

    def close(self) -> None:
        super().close()
        self._note("closed", self.tag)
        if _Graphics.current is self.context:
            _Graphics.current = None

    def __del__(self) -> None:
        if _Graphics.current is not None:
            _Graphics.current.pop(_TEXTURE, None)

    def _note(self, event: str, tag: int) -> None:
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(f"{event} {tag}\n")


class TextEnv(ContextEnv):
    render_mode = "ansi"


class PixelEnv(ContextEnv):
    """An env without a render mode that observes its picture."""

    render_mode = None

    def __init__(self, tag: int = 0, **hooks: Any) -> None:
        super().__init__(tag, **hooks)
        self.observation_space = spaces.Box(0, 255, _SHAPE, np.uint8)

    def observe(self) -> Any:
        return _Graphics.draw(self.steps)


class ViewingEnv(PixelEnv):
    """An env that observes its picture, as its render mode tells."""

    render_mode = "rgb_array"


class OwnContextEnv(ContextEnv):
    """Draws correctly: it makes its context current first, and frees no object of another context."""

    def render(self) -> Any:
        _Graphics.current = self.context
        return super().render()

    def __del__(self) -> None:
        pass


def pictures(pool: Any) -> list[int]:
    """Returns one pixel of each env's picture."""
    return [int(picture[0, 0, 0]) for picture in pool.call("render")]


def colour(tag: int, steps: int = 0) -> int:
    """Returns a pixel of the picture that an env draws if it is alone in its process."""
    return 16 * (tag + 1) + steps


def forget_graphics() -> None:
    """Frees the objects of earlier envs before another env draws in this process."""
    gc.collect()
    _Graphics.current = None
