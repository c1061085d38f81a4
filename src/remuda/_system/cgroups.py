"""Finds the control groups of this process, which limit its resources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

ROOT = Path("/")


def control_groups(controller: str, root: Path = ROOT) -> Sequence[tuple[int, Sequence[Path]]]:
    """Returns (cgroup version, directories) for each hierarchy that the controller may be in, version 1 first.

    The directories are those of this process's group and of its ancestors, the nearest first. Some may not exist. In a
    container, the kernel may report the host's path of the group, although the group is mounted as the root, the last.
    """
    return _directories(read_text(root / "proc/self/cgroup"), controller, root)


@lru_cache(maxsize=8)
def _directories(text: str, controller: str, root: Path) -> Sequence[tuple[int, Sequence[Path]]]:
    """`text`: the kernel's list of groups. The result is cached, because the start of a pool needs it several times."""
    found = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            found += [(1, mount, path) for mount in dict.fromkeys((controllers, controller))]
        elif number == "0" and not controllers:
            found += [(2, mount, path) for mount in ("", "unified")]  # "unified": version 2 mounted beside version 1
    directories = []
    for version, mount, path in sorted(found):
        parts = [part for part in path.split("/") if part not in ("", "..")]
        around = [(root / "sys/fs/cgroup" / mount).joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]
        directories.append((version, around))
    return directories


def read_number(path: Path) -> int | None:
    """Returns the number in a file; None if it cannot be read, or has no limit ("max")."""
    text = read_text(path).strip()
    return int(text) if text.isdigit() else None


def read_text(path: Path) -> str:
    """Returns the text of a file; empty if it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""
