"""A worker is asked for its stack, and what is opened for that is closed."""

from __future__ import annotations

import subprocess
import sys

from programs import holdings

from remuda._relay.stacks import stack_of

NOT_SO_FAR = """
import os
os.memfd_create("remuda-stacks")
print("there", flush=True)
input()
"""


def test_one_that_has_not_come_so_far_does_not_answer_and_leaves_nothing_open() -> None:
    with subprocess.Popen([sys.executable, "-c", NOT_SO_FAR], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        before = holdings()
        assert "has not come that far" in stack_of(process.pid).problem
        assert holdings() == before
        process.communicate(b"\n")
