"""Envs that write to memory and descriptors that they do not own. Workers import this module by name."""

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
    """Overwrites doorbells, meters and rings, which certainly precede actions and observations.

    Then it hangs, because results that the worker publishes later could hide the damage.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/memfd:remuda (deleted)" in line:
            begin = int(line.split("-")[0], 16)
            ctypes.memset(begin + 64, 0xA5, 2 * PAGE)
    wait_for_ever()


def write_to_socket(*_: Any) -> None:
    """Writes to sockets, as a library does that uses descriptors which it does not own."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.socket(fileno=os.dup(fd)) as found:
                    if found.type == socket.SOCK_STREAM:
                        found.send(b"\xff" * 100)
        except OSError:
            pass  # closed meanwhile, or not connected


class WildTextEnv(TextEnv):
    """A TextEnv that writes to its worker's socket before a step with a result that is too large for shared memory."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = Path(marker)

    def step(self, action: Any) -> Any:
        once(self.marker, write_to_socket)(self)
        return super().step(action)
