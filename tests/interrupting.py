"""Interrupts at each step of the interpreter, as the handler of a signal may raise them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


class Interrupt(BaseException):
    """As the handler of a signal may raise it."""


def anywhere(_: FrameType) -> bool:
    return True


_PUSH, _POP, _COPY = (dis.opmap.get(name) for name in ("PUSH_EXC_INFO", "POP_EXCEPT", "COPY"))
_bytecode: dict[int, tuple[CodeType, bytes]] = {}  # by id of the code, which stays alive here


def _is_between_handlers(frame: FrameType) -> bool:
    """Whether the next step begins or ends an `except` or `finally`: CPython handles no signal there.

    An exception raised there leaves the one before it "handled" for good: the context of all later exceptions of the
    thread, whose traceback keeps what its frames refer to.
    """
    code = frame.f_code
    if id(code) not in _bytecode:
        _bytecode[id(code)] = code, code.co_code
    steps, at = _bytecode[id(code)][1], frame.f_lasti
    return steps[at] in (_PUSH, _POP) or (steps[at] == _COPY and steps[at + 2] == _POP)


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
            if left < 0 and not _is_between_handlers(frame):  # else at the next step
                hit.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} at {frame.f_lasti}")
                raise Interrupt(hit[0])
        return trace

    sys.settrace(trace)
    try:
        yield hit
    finally:
        sys.settrace(None)
