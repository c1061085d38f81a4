"""Directories that stand for `/`, with the files of `/proc` and `/sys` that a test needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GROUPS = "sys/fs/cgroup"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_root(root: Path, cgroup: str, groups: Mapping[str, str]) -> Path:
    """Writes the kernel's list of the process's control groups, and files of control groups by path. Returns `root`."""
    write(root / "proc/self/cgroup", cgroup)
    for name, text in groups.items():
        write(root / GROUPS / name, text)
    return root
