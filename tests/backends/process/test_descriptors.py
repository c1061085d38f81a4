"""Programs that envs start inherit the descriptors 0, 1 and 2 and no other of the pool's."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest
from programs import Script

from remuda import _core
from remuda._wire.channel import NonsenseError, SocketChannel

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]


LISTING = """
import os
held = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
links = [os.readlink(path) for path in held if os.path.exists(path)]  # excludes the listing's own
open(%r, "a").write(f"{sorted(links)}\\n")
"""


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_programs_inherit_no_descriptor(start_method: str, script: Callable[..., Script], tmp_path: Any) -> None:
    """The programs are started from a constructor, a step, a call, a successor, and from the pool's process."""
    run = script(
        f"""
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
"""
    )
    listings = run.read_line()
    code, _, _ = run.await_end()
    assert code == 0
    assert listings == ["[]"] * 3 * 5


def test_received_descriptors_are_closed_on_exec() -> None:
    near, far = socket.socketpair()
    sender, receiver = SocketChannel(near), SocketChannel(far)
    sender.send_fds([0, 1])
    fds = receiver.recv_fds(2)
    inheritable = [os.get_inheritable(fd) for fd in (*fds, near.fileno(), far.fileno())]
    for fd in fds:
        os.close(fd)
    sender.close()
    receiver.close()
    assert inheritable == [False] * 4


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([2**63], "fits into this machine's memory"),
        ([2**64 - 1] * 3, "fits into this machine's memory"),
        ([2**62] * 4, "fits into this machine's memory"),
        (range(2**32 - 1, 2**32), "at most 16777216 parts"),
    ],
)
def test_impossible_sizes_are_refused_before_memory_is_allocated(sizes: Any, message: str) -> None:
    near, far = socket.socketpair()
    channel = SocketChannel(far)
    count = sizes[0] if isinstance(sizes, range) else len(sizes)
    near.sendall(struct.pack("<12sI", b"remuda: msg\n", count))
    if not isinstance(sizes, range):
        near.sendall(struct.pack(f"<{count}Q", *sizes))
    with pytest.raises(NonsenseError, match=message):
        channel.recv()
    near.close()
    channel.close()


def test_memory_is_allocated_only_as_bytes_arrive() -> None:
    """A header claims half of the machine's memory, and the bytes do not follow."""
    claimed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    near, far = socket.socketpair()
    channel = SocketChannel(far)
    near.sendall(struct.pack("<12sIQ", b"remuda: msg\n", 1, claimed) + b"x" * 1000)
    near.close()
    before = resident()
    with pytest.raises(EOFError):
        channel.recv()
    assert resident() - before < 1 << 24
    channel.close()


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_descriptors_are_closed_once() -> None:
    fds = _core.Descriptors()
    with pytest.raises(OSError, match="Bad file descriptor"):
        fds.extend(map(os.dup, [0, 1, -1, 0]))  # the descriptors before the failing one are kept
    first, second = fds
    assert (fds[0], fds[1], len(fds)) == (first, second, 2)
    assert is_open(first)
    fds.close_first()
    assert (list(fds), is_open(first), is_open(second)) == ([second], False, True)
    fds.close()
    assert (list(fds), is_open(second)) == ([], False)
    fds.extend(map(os.dup, [0]))
    (third,) = fds
    fds.close()
    with open(os.dup(0)) as other:  # has the same number, and must not be closed again
        assert other.fileno() == third
        fds.close()
        del fds
        assert is_open(third)
    fds = _core.Descriptors()
    fds.extend(map(os.dup, [0]))
    (fourth,) = fds
    del fds
    assert not is_open(fourth)
