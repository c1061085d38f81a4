"""Starts Python interpreters with the options of this one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from functools import partial
from typing import cast

from remuda import _core
from remuda._system.interpreter import import_path, no_command
from remuda._system.limits import naming_long_variables
from remuda.errors import RemudaError

# The letters of options without an argument, by the field of `sys.flags` that counts each option.
_LETTERS = {
    "debug": "d",
    "optimize": "O",
    "dont_write_bytecode": "B",
    "no_site": "S",
    "bytes_warning": "b",
    "quiet": "q",
    "verbose": "v",
    "isolated": "I",
    "ignore_environment": "E",
    "no_user_site": "s",
    "safe_path": "P",
}


def python_command(module: str, function: str, *args: int) -> list[str]:
    """Returns a command that calls `function(*args)` with this interpreter's options and import path.

    Raises RemudaError if this program has no interpreter to start.
    """
    if (problem := no_command()) is not None:
        raise RemudaError(
            f"expected sys.executable to start a Python interpreter, got none: {problem}; use the start method 'fork'; "
            "a program that embeds Python may instead set sys.executable to an interpreter with the same packages"
        )
    call = f"{function}({', '.join(map(str, args))})"
    code = f"import sys; sys.path[:] = {import_path()!r}; from {module} import {function}; {call}"
    return [sys.executable, *_options(), "-c", code]


def start_python(
    module: str, function: str, fd: int, variables: dict[str, str], output: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts a program that calls `function(fd, pid of this process)`, in a session of its own.

    Args:
        module: The function's module.
        function: Its name.
        fd: A descriptor that the program inherits.
        variables: The program's environment.
        output: The descriptor of its standard output and error; None: those of this process.
    """
    # With `DEVNULL`, an interrupt could make `Popen` leak a descriptor.
    with io.FileIO(os.devnull) as nothing, naming_long_variables(variables):
        start = partial(
            subprocess.Popen,
            python_command(module, function, fd, os.getpid()),
            pass_fds=[fd],
            start_new_session=True,
            env=variables,
            stdin=nothing,
            stdout=output,
            stderr=output,
        )
        return cast("subprocess.Popen[bytes]", _core.without_job_signals(start))


def _options() -> list[str]:
    letters = [
        "-" + letter * int(count)
        for field, letter in _LETTERS.items()
        if (count := getattr(sys.flags, field, 0)) and not _is_implied(field)
    ]
    extended = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    warnings = sys.warnoptions
    if sys.flags.dev_mode and warnings[:1] == ["default"]:
        warnings = warnings[1:]  # `-X dev`, which is passed too, adds this filter itself
    return letters + [f"-W{_without_errors(option)}" for option in warnings] + extended


def _is_implied(field: str) -> bool:
    """Whether a flag is implied by -I, which is passed as well."""
    return bool(sys.flags.isolated) and field in {"ignore_environment", "no_user_site", "safe_path"}


def _without_errors(option: str) -> str:
    """Returns a -W option that makes the worker show the warnings that this process raises as errors.

    They must not make imports and envs fail. The warning is issued again in this process, which may raise it.
    """
    action, colon, rest = option.partition(":")
    return f"default{colon}{rest}" if action and "error".startswith(action) else option
