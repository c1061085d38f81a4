"""Interrupts at each bytecode instruction or line, as a signal handler may raise them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


class Interrupt(BaseException):
    """An exception like one that a signal handler raises."""


def anywhere(_: FrameType) -> bool:
    return True


_PUSH, _POP, _COPY = (dis.opmap.get(name) for name in ("PUSH_EXC_INFO", "POP_EXCEPT", "COPY"))
_bytecode: dict[int, tuple[CodeType, bytes]] = {}  # by id of the code object, which is kept alive here


def _is_between_handlers(frame: FrameType) -> bool:
    """Returns whether the next instruction begins or ends an `except` or `finally`. CPython runs no signal handler
    there.

    An exception there would leave the previous one "handled" permanently, as the context of all later exceptions of the
    thread, and would keep the objects of its frames.
    """
    code = frame.f_code
    if id(code) not in _bytecode:
        _bytecode[id(code)] = code, code.co_code
    steps, at = _bytecode[id(code)][1], frame.f_lasti
    return steps[at] in (_PUSH, _POP) or (steps[at] == _COPY and steps[at + 2] == _POP)


@contextmanager
def interrupting(
    n: int, files: tuple[str, ...], counts: Callable[[FrameType], bool] = anywhere, unit: str = "opcode"
) -> Iterator[list[str]]:
    """Raises before the n-th bytecode instruction in these files, also within a line. Yields a list with the place.

    `counts`: returns whether an instruction counts. `unit`: "line" raises before the n-th line instead.
    """
    hit: list[str] = []
    left = n

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if hit or not frame.f_code.co_filename.startswith(files):
            return None
        frame.f_trace_opcodes = unit == "opcode"
        if event == unit and counts(frame):
            left -= 1
            if left < 0 and not _is_between_handlers(frame):  # otherwise at the next instruction
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} at {frame.f_lasti}")
                raise Interrupt(hit[0])
        return trace

    sys.settrace(trace)
    try:
        yield hit
    finally:
        sys.settrace(None)
