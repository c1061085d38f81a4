"""`stack_of` closes all that it opens to read a worker's stack."""

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


def test_a_worker_that_is_still_starting_has_no_stack_and_nothing_stays_open() -> None:
    with subprocess.Popen([sys.executable, "-c", NOT_SO_FAR], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        before = holdings()
        assert stack_of(process.pid) == ""
        assert holdings() == before
        process.communicate(b"\n")
