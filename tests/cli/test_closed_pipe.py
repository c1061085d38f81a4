"""If the reader of the output closes the pipe, as `head` does, the command ends without an error message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import HEAD


def run_into_closed_pipe(*arguments: str) -> tuple[int, str]:
    """Runs the command with an output that is closed. Returns its exit status and standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "remuda", *arguments]
        # With PYTHONUNBUFFERED, argparse ignores the closed pipe.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=env)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["top", "--help"]])
def test_help_and_version_end_quietly(arguments: list[str]) -> None:
    assert run_into_closed_pipe(*arguments) == (141, "")


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_top_ends_quietly() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", f"{HEAD}\npool = Pool(counting(2), num_workers=1)\nsay(1)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    with program:
        assert program.stdout is not None
        program.stdout.readline()
        assert run_into_closed_pipe("top", str(program.pid), "--json", "--interval", "0.05") == (141, "")
        program.communicate("\n")
