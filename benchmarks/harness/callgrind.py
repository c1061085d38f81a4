"""Counts instructions with valgrind's callgrind. The counts do not depend on the load of the machine.

A benchmark runs its own script under valgrind with other arguments. That run calls `start` when counting shall begin.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def require() -> None:
    """Raises SystemExit if valgrind is not installed."""
    if shutil.which("valgrind") is None:
        sys.exit("expected valgrind on PATH, found none. Install it: apt-get install valgrind, dnf install valgrind")


def count(script: str, *arguments: str) -> list[int]:
    """Runs a script under valgrind. Returns each thread's instructions since its call of `start`, main thread first."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        options = ["--instr-atstart=no", "--separate-threads=yes", f"--callgrind-out-file={out}"]
        subprocess.run(
            ["valgrind", "--tool=callgrind", *options, sys.executable, script, *arguments],
            env={**os.environ, "PYTHONHASHSEED": "0"},  # random hashes would change the counts
            check=True,
            capture_output=True,
        )
        return [_total(file) for file in sorted(Path(folder).glob("out-*"))]


def start() -> None:
    """Makes valgrind count this process from now on."""
    subprocess.run(["callgrind_control", "--instr=on", str(os.getpid())], check=True, capture_output=True)


def stop() -> None:
    """Makes valgrind stop counting."""
    subprocess.run(["callgrind_control", "--instr=off", str(os.getpid())], check=True, capture_output=True)


def _total(file: Path) -> int:
    lines = file.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("totals:"))
