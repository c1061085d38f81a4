"""Facts about this Python interpreter."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import current_process
from typing import Any


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
