"""Starts Python interpreters with the options of this one."""

from __future__ import annotations

import os
import posix
import re
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from remuda import _core
from remuda._system.interpreter import import_path, no_command
from remuda._system.limits import naming_long_variables
from remuda._system.originals import copy_of
from remuda._worker.job_signals import job_signals_blocked
from remuda.errors import RemudaError

if TYPE_CHECKING:
    import subprocess
else:
    subprocess = copy_of("subprocess")


def start_python(
    module: str, function: str, fd: int, variables: dict[str, str], output: int | None = None
) -> tuple[int, _core.Descriptors]:
    """Starts a program that calls `function(fd, pid of this process)`, in a session of its own.

    It has this interpreter's options and import path. Returns its pid and its pidfd. The caller must reap it.

    Args:
        module: The function's module.
        function: Its name.
        fd: A descriptor that the program inherits.
        variables: The program's environment.
        output: The descriptor of its standard output and error; None: those of this process.

    Raises RemudaError if this program has no interpreter to start.
    """
    if (problem := no_command()) is not None:
        raise RemudaError(
            f"expected sys.executable to start a Python interpreter, got none: {problem}; use the start method 'fork'; "
            "a program that embeds Python may instead set sys.executable to an interpreter with the same packages"
        )
    call = f"{function}({fd}, {os.getpid()})"
    code = f"import sys; sys.path[:] = {import_path()!r}; from {module} import {function}; {call}"
    with naming_long_variables(variables), job_signals_blocked():
        process = subprocess.Popen(
            [sys.executable, *_options(), "-c", code],
            pass_fds=[fd],
            start_new_session=True,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    process.returncode = 0  # the caller reaps it: `subprocess` must not wait for it or guess its exit code
    return process.pid, pidfd_of_child(process.pid)


def pidfd_of_child(pid: int) -> _core.Descriptors:
    """Opens the pidfd of a new child. If no descriptor is free, kills and reaps the child, and raises OSError."""
    try:
        return _core.Descriptors([os.pidfd_open(pid)])
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # SIGCHLD is ignored, or other code waits for all children
            posix.waitid(os.P_PID, pid, os.WEXITED)
        raise


def _options() -> list[str]:
    """Returns this interpreter's options, with all options -X, also those that only the program knows.

    Where an option -W makes an error of a warning, the program gets the action "default": an error must not make
    imports and envs fail. The warning is issued again in this process, which may raise it.
    """
    known: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    extended = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    return [re.sub(r"^-We(r(r(or?)?)?)?(?=:|$)", "-Wdefault", option) for option in known] + extended
