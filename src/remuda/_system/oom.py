"""Checks whether the kernel's out-of-memory killer ended a worker, which looks like any other SIGKILL.

The kernel counts the processes that it kills, in the control group of the victim (with version 2 also in its ancestors)
and for the whole machine. A kill that was counted after the pool was made, and that explains no earlier death, explains
this one.
"""

from __future__ import annotations

import re
from pathlib import Path

from remuda._system.cgroups import ROOT, control_groups, read_text
from remuda.errors import MemoryVerdict


class OomWatch:
    """Compares the kernel's counters of out-of-memory kills with their values when this object was made.

    The counter of this process's control group is separate from those of its ancestors, which count other kills, too.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._own, self._outer = _counters(root)

    def judge(self) -> MemoryVerdict:
        """Returns whether lack of memory caused a worker's end by SIGKILL. Each counted kill explains one death."""
        own, outer = _take_one(self._own), _take_one(self._outer)
        if own is not None:
            return MemoryVerdict(True, f"the kernel ran out of memory ({own})")
        if outer is not None:
            # Kernels count a kill in the victim's own group. Counters of other groups may be for another process.
            unsure = "perhaps" if self._own else "most likely"
            verdict = None if self._own else True
            return MemoryVerdict(verdict, f"{unsure} the kernel ran out of memory ({outer}, which counts others too)")
        if not self._own and not self._outer:
            return MemoryVerdict(None, "whether memory had run out cannot be read here: see `dmesg`")
        return MemoryVerdict(
            False,
            "not by the kernel's out-of-memory killer as far as its counters show; "
            "a `kill -9`, or a daemon such as systemd-oomd?",
        )


def _take_one(counters: dict[Path, int]) -> str | None:
    """Takes one kill from each counter that has risen. Returns a description of the first such counter, or None."""
    found = None
    for path, before in counters.items():
        now = _read(path)
        if now is not None and now > before:
            counters[path] = before + 1
            found = found or f"oom_kill rose from {before} to {now} in {path}"
    return found


def _counters(root: Path) -> tuple[dict[Path, int], dict[Path, int]]:
    """Returns the counters of this process's control group, and of its ancestors, the nearest first."""
    for version, groups in control_groups("memory", root):
        name = "memory.oom_control" if version == 1 else "memory.events"
        if found := _known([group / name for group in groups]):
            nearest = next(iter(found))
            return {nearest: found.pop(nearest)}, found
    return {}, _known([root / "proc/vmstat"])


def _known(paths: list[Path]) -> dict[Path, int]:
    return {path: count for path in paths if (count := _read(path)) is not None}


def _read(path: Path) -> int | None:
    match = re.search(r"^oom_kill (\d+)$", read_text(path), re.MULTILINE)
    return None if match is None else int(match[1])
