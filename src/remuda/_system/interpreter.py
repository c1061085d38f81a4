"""Facts about this Python interpreter, and its exit while daemon threads of the program still use pools.

Daemon threads run until the interpreter is gone. A thread that uses a pool then must not get errors from closing it:
the pool is not closed, and its workers end with the process.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import current_process
from pathlib import Path
from types import FrameType
from typing import Any

own_threads: set[int] = set()  # the idents of the running threads that belong to pools, and run no code of the program

_ENGINE = str(Path(__file__).parents[1] / "_engine")


def has_gil() -> bool:
    """Returns whether only one thread at a time runs Python code. In a free-threaded Python that may change, because
    importing some extension modules enables the GIL."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)  # Python 3.13 and newer
    return is_enabled is None or bool(is_enabled())


def is_importing_main() -> bool:
    """Returns whether this process runs definitions of another process's `__main__`, so must not start processes."""
    return bool(getattr(current_process(), "_inheriting", False))


@contextmanager
def importing_main() -> Iterator[None]:
    """Runs the block as `multiprocessing` imports `__main__` in its children: meanwhile no process may be started."""
    process: Any = current_process()
    before = is_importing_main()
    process._inheriting = True
    try:
        yield
    finally:
        process._inheriting = before


def no_command() -> str | None:
    """Returns why no command starts another Python interpreter; None if `sys.executable` does.

    In a frozen program, and in some programs that embed Python, it would start the program itself again.
    """
    program = sys.executable
    if getattr(sys, "frozen", False):
        return "this program is frozen (sys.frozen)"
    if not program or shutil.which(program) is None:
        return f"sys.executable is {program!r}"
    if _embeds_python() and os.path.exists("/proc/self/exe") and os.path.samefile(program, "/proc/self/exe"):
        return f"this program, {program}, embeds Python, and sys.executable names the program"
    return None


def arguments() -> list[str]:
    """Returns `sys.argv`, which the program may have changed or deleted, without elements that are no strings."""
    return [argument for argument in getattr(sys, "argv", None) or [] if isinstance(argument, str)]


def import_path() -> list[str]:
    """Returns `sys.path` without elements that are no strings, which imports skip, too."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def globals_of_main() -> dict[str, Any]:
    """Returns the globals of the program's `__main__`; empty if the program has removed or replaced that module."""
    names: dict[str, Any] = getattr(sys.modules.get("__main__"), "__dict__", {})
    return names


def _embeds_python() -> bool:
    """Whether this process's command line is not that of an interpreter, which takes its own name from `sys.argv`."""
    return sys.orig_argv[:1] in ([], arguments()[:1])


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
