"""If the reader of the output closes the pipe, as `head` does, the command ends without an error message."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["top", "--help"]])
def test_help_and_version_end_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "remuda", *arguments]
    # With PYTHONUNBUFFERED, argparse ignores the closed pipe.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=env)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
