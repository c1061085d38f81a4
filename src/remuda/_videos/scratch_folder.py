"""Temporary folders for parts of videos. A process removes its folders when it ends.

If a process is killed, a later process removes its folders.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
import tempfile
import zlib
from pathlib import Path

from remuda._wire.card import start_of

_PREFIX = ".remuda-"
_owned: dict[Path, int] = {}  # by folder: the owner's pid, because a forked child must not remove the folder


def new_scratch(folder: str | os.PathLike[str]) -> Path:
    """Makes a hidden folder in `folder`, and removes the hidden folders of processes that were killed.

    The name contains the owner, so that every folder has one from the start.

    Raises:
        OSError: The folder cannot be made.
    """
    home = Path(folder).absolute()
    os.makedirs(home, exist_ok=True)
    _remove_orphans(home)
    owner = f"{os.getpid()}-{start_of(os.getpid()) or 0}-{_place()}"
    scratch = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}-", dir=home))
    _owned[scratch] = os.getpid()
    return scratch


def remove_scratch(scratch: Path) -> None:
    """Removes the folder. If a worker still writes into it, the rest is removed when this process ends."""
    shutil.rmtree(scratch, ignore_errors=True)
    if not scratch.exists():
        _owned.pop(scratch, None)


@atexit.register
def _remove_own() -> None:
    for scratch, owner in list(_owned.items()):
        if owner == os.getpid():
            remove_scratch(scratch)


def _remove_orphans(home: Path) -> None:
    for scratch in home.glob(f"{_PREFIX}*"):
        if _is_orphan(scratch.name.removeprefix(_PREFIX)):
            shutil.rmtree(scratch, ignore_errors=True)


def _is_orphan(owner: str) -> bool:
    """Whether a folder's owner is known to be dead. False for owners on other machines or in other containers."""
    known = re.match(rf"(\d+)-([1-9]\d*)-{_place()}-", owner)
    return known is not None and start_of(int(known[1])) != int(known[2])


def _place() -> str:
    """Returns an id of the machine or container in which this process's pid is valid."""
    numbers = os.readlink("/proc/self/ns/pid") if sys.platform == "linux" else ""
    return f"{zlib.crc32(f'{socket.gethostname()} {numbers}'.encode()):08x}"
