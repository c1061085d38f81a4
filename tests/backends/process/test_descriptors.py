"""Programs that envs start inherit the descriptors 0, 1 and 2 and no other of the pool's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from programs import Script

from remuda import _core

LISTING = """
import os
held = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
links = [os.readlink(path) for path in held if os.path.exists(path)]  # excludes the listing's own
open(%r, "a").write(f"{sorted(links)}\\n")
"""


def test_programs_inherit_no_descriptor(start_method: str, script: Callable[..., Script], tmp_path: Any) -> None:
    """The programs are started from a constructor, a step, a call, a successor, and from the pool's process."""
    run = script(f"""
from shlex import join
program = [sys.executable, "-S", "-c", {LISTING % str(tmp_path / "listing")!r}]

def start_programs(*_):
    subprocess.run(program, close_fds=False, check=True)
    os.system(join(program))
    native = ctypes.CDLL(None)
    if native.fork() == 0:
        native.execv(program[0].encode(), (ctypes.c_char_p * 5)(*[part.encode() for part in program], None))
    os.wait()

pool = Pool(hooked(2, (0,), build=start_programs), start_method={start_method!r}, worker_output="capture",
            faults="restart")
pool.reset()
start_programs()
with open(os.pidfd_open(pool.workers[0].pid)) as pidfd:
    os.kill(pool.workers[0].pid, signal.SIGKILL)
    __import__("select").select([pidfd], [], [])
pool.step([0, 0])
pool.step([0, 0])
pool.apply(start_programs)
pool.close()
say(Path({str(tmp_path / "listing")!r}).read_text().splitlines())
""")
    listings = run.read_line()
    code, _, _ = run.await_end()
    assert code == 0
    assert listings == ["[]"] * 3 * 5


def test_descriptors_are_closed_once() -> None:
    fds = _core.Descriptors(map(os.dup, [0, 1]))
    first, _ = fds
    assert fds.take_first() == first
    os.close(first)  # raises if it was closed
    fds.close()
    with open(os.dup(0)) as other:  # may have the same number as one of them, and must not be closed again
        fds.close()
        del fds
        os.fstat(other.fileno())
