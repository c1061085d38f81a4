"""Interrupts at each step of the interpreter, as the handler of a signal may raise them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


class Interrupt(BaseException):
    """As the handler of a signal may raise it."""


def anywhere(_: FrameType) -> bool:
    return True


@contextmanager
def interrupting(n: int, where: tuple[str, ...], counts: Callable[[FrameType], bool] = anywhere) -> Iterator[list[str]]:
    """Raises before the n-th step of the interpreter in these files, also within a line; the list tells where.

    `counts`: whether a step is one of them.
    """
    hit: list[str] = []
    left = n

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if hit or not frame.f_code.co_filename.startswith(where):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and counts(frame):
            left -= 1
            if left < 0:
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} at {frame.f_lasti}")
                raise Interrupt(hit[0])
        return trace

    sys.settrace(trace)
    try:
        yield hit
    finally:
        sys.settrace(None)
