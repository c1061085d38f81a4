"""Actions by which an env harms its worker. Workers import this module by name."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from odd_exceptions import NeedsArguments, Unpicklable

Accident = Callable[..., Any]

# -- the worker dies -------------------------------------------------------------------------------------


def kill_myself(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is deadly")


die: Accident = kill_myself


def segfault(*_: Any) -> None:
    _no_core()
    ctypes.memset(None, 0, 1)


def abort(*_: Any) -> None:
    _no_core()
    ctypes.CDLL(None).abort()


def leave(*_: Any) -> None:
    os._exit(3)


def write_where_malloc_failed(*_: Any) -> None:
    """Writes to the result of a failed `malloc`, as careless native code does."""
    _no_core()
    _limit_memory()
    malloc = ctypes.CDLL(None).malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    ctypes.memset(malloc(_TOO_MUCH), 0, 1)


# -- it raises -------------------------------------------------------------------------------------------


def raise_value_error(*_: Any) -> None:
    raise ValueError("broken")


def raise_unpicklable(*_: Any) -> None:
    raise Unpicklable


def raise_needs_arguments(*_: Any) -> None:
    raise NeedsArguments(7, "seven")


def exit_python(*_: Any) -> None:
    raise SystemExit(3)


def run_out_of_memory(*_: Any) -> None:
    before = _limit_memory()
    try:
        bytearray(_TOO_MUCH)
    finally:
        # restores the limit, which a worker thread shares with the whole program
        resource.setrlimit(resource.RLIMIT_AS, before)


# -- it hangs --------------------------------------------------------------------------------------------


def stop_myself(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def loop_for_ever(*_: Any) -> None:
    while True:
        pass


def hold_the_gil(*_: Any) -> None:
    """Hangs forever in native code with the GIL."""
    ctypes.PyDLL(None).pause()


def wait_for_ever(*_: Any) -> None:
    threading.Event().wait()


# -- when ----------------------------------------------------------------------------------------------


def once(
    path: Path, act: Callable[..., Any], when: Callable[..., bool] = lambda *_: True, *, skip: int = 0
) -> Callable[..., Any]:
    """Returns a hook that acts once over all processes: at the first call for which `when` is true, after `skip` such
    calls.
    """
    markers = [f"{path}.{i}" for i in range(skip + 1)]

    def hook(*args: Any) -> Any:
        for marker in markers if when(*args[:1]) else ():
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return act(*args) if marker == markers[-1] else None
        return None

    return hook


# -- helpers ---------------------------------------------------------------------------------------------


_TOO_MUCH = 1 << 42


def _no_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_memory() -> tuple[int, int]:
    """Limits memory to the used size and some more for the report. Returns the old limit."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + (64 << 20), before[1]))
    return before
