"""Envs that write where they must not. Workers import this by name."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from pathlib import Path
from typing import Any

from accidents import once, wait_for_ever
from pool_envs import TextEnv

PAGE = 4096


def overwrite_memory(*_: Any) -> None:
    """All that is not observation or action, as far as it is certain: doorbells, meters and rings come first.

    And waits for the end: what the worker published after it could lie over what was written, before anybody looks.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/memfd:remuda (deleted)" in line:
            begin = int(line.split("-")[0], 16)
            ctypes.memset(begin + 64, 0xA5, 2 * PAGE)
    wait_for_ever()


def write_to_socket(*_: Any) -> None:
    """As a library does that closes, or writes to, descriptors which it does not own."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.socket(fileno=os.dup(fd)) as found:
                    if found.type == socket.SOCK_STREAM:
                        found.send(b"\xff" * 100)
        except OSError:
            pass  # closed by now, or not connected


class WildTextEnv(TextEnv):
    """Answers with more than fits in shared memory, and its socket has been written to before."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = Path(marker)

    def step(self, action: Any) -> Any:
        once(self.marker, write_to_socket)(self)
        return super().step(action)
