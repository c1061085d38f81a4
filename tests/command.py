"""Runs the `remuda` command in this process or in another one."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from remuda.cli.app import main


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def command(*arguments: str) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    code: str | int | None = None
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main(arguments)
    except SystemExit as end:
        code = end.code
    assert isinstance(code, int), code
    return Outcome(code, out.getvalue(), err.getvalue())


def command_apart(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own. `options`: of `subprocess.run`."""
    words = [sys.executable, "-m", "remuda", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)
