"""The interpreter's exit while daemon threads of the program still use pools.

Daemon threads run until the interpreter is gone. A thread that uses a pool then must not get errors from closing it:
the pool is not closed, and its workers end with the process.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

own_threads: set[int] = set()  # the idents of the running threads that belong to pools, and run no code of the program

_ENGINE = str(Path(__file__).parents[1] / "_engine")


def is_exiting() -> bool:
    """Whether the main thread has left the program, and runs exit handlers."""
    main = threading.main_thread()
    # Before Python 3.13, an interrupt within `is_alive` may end the main thread in the eyes of `threading`.
    is_over: bool | None = getattr(main, "_is_stopped", None)
    return not main.is_alive() if is_over is None else is_over


def leave_pools_alone() -> bool:
    """Whether to leave pools open: the interpreter exits while another thread runs code of a pool."""
    mine = {threading.get_ident(), *own_threads}
    return is_exiting() and any(
        _is_in_engine(frame) for thread, frame in sys._current_frames().items() if thread not in mine
    )


def hold_daemon_thread() -> None:
    """If the interpreter exits, blocks the calling thread, because pools may have ended. The main thread continues."""
    if is_exiting() and threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


def _is_in_engine(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not hold_daemon_thread.__code__:
        if frame.f_code.co_filename.startswith(_ENGINE):
            return True
        frame = frame.f_back
    return False
