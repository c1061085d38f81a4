"""Ends child processes that code of the user forks, and that come back from this code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from remuda import _core


class OneProcess:
    """A `with` block for code of the user, such as an env's, that only one process leaves.

    If the code forks, the child ends when it comes to the end of the block. Otherwise two processes would continue as
    one worker. (A function that calls the code would be seen in the user's tracebacks.)
    """

    def __enter__(self) -> None:
        self._forks = _core.fork_count()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if _core.fork_count() != self._forks:
            end_child(error)


def end_child(error: BaseException | None) -> NoReturn:
    """Ends a forked child as `multiprocessing` does after its function has raised `error` (None: has returned)."""
    status = 1
    try:
        if error is None:
            status = 0
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
        flush_output()
    finally:
        os._exit(status & 0xFF)  # without the parent's exit handlers


def run_and_end(work: Callable[[], object]) -> NoReturn:
    """Ends a forked child after `work`, without the exit handlers of its parent."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # the stream is closed, a pipe without a reader, or an object of the program that raises anything
