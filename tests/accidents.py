"""What an env may do to its worker. Workers import this by name."""

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

import simulators
from odd_exceptions import NeedsArguments, Unpicklable

Accident = Callable[..., Any]

SIMULATORS = "REMUDA_TEST_SIMULATORS"  # the variable with the file that tells their pids


# -- the worker dies -------------------------------------------------------------------------------------


def kill_myself(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is deadly")


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(*_: Any) -> None:
    _no_core()
    ctypes.memset(None, 0, 1)


def abort(*_: Any) -> None:
    _no_core()
    ctypes.CDLL(None).abort()


def leave(*_: Any) -> None:
    os._exit(3)


def write_where_malloc_failed(*_: Any) -> None:
    """As native code does that does not ask whether it was given memory."""
    _no_core()
    _limit_memory()
    malloc = ctypes.CDLL(None).malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    ctypes.memset(malloc(_TOO_MUCH), 0, 1)


def orphan_simulators(*_: Any) -> None:
    """Dies when it has started simulators: one in a session of its own, and one whose parent has ended."""
    pids = f"{simulators.in_a_session()} {simulators.as_a_daemon()}"
    Path(os.environ[SIMULATORS]).write_text(pids)
    kill_myself()


# -- it raises -------------------------------------------------------------------------------------------


def raise_value_error(*_: Any) -> None:
    raise ValueError("broken")


def raise_unpicklable(*_: Any) -> None:
    raise Unpicklable


def raise_what_needs_arguments(*_: Any) -> None:
    raise NeedsArguments(7, "seven")


def exit_python(*_: Any) -> None:
    raise SystemExit(3)


def run_out_of_memory(*_: Any) -> None:
    before = _limit_memory()
    try:
        bytearray(_TOO_MUCH)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)  # where the worker is a thread, it is the whole program's


# -- it hangs --------------------------------------------------------------------------------------------


def stop_myself(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def loop_for_ever(*_: Any) -> None:
    while True:
        pass


def hold_the_gil(*_: Any) -> None:
    """In native code, for ever."""
    ctypes.PyDLL(None).pause()


def ignore_signals(*_: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()


def wait_for_ever(*_: Any) -> None:
    threading.Event().wait()


# -- when ----------------------------------------------------------------------------------------------


def once(
    path: Path, act: Callable[..., Any], when: Callable[..., bool] = lambda *_: True, *, skip: int = 0
) -> Callable[..., Any]:
    """A hook that acts the first time that `when` says so, after `skip` more, and never again, in whatever process."""
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
    """To as much as is in use, and a bit for the report. Returns the limit before."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + (64 << 20), before[1]))
    return before
