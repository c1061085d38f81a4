"""remuda on systems without POSIX features: it can be imported, and steps envs in threads and in the caller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = Path(__file__).resolve().parents[1] / "packaging" / "elsewhere.py"


@pytest.mark.skipif(sys.platform != "linux", reason="it takes away what Linux has")
def test_remuda_works_without_posix_modules() -> None:
    run = subprocess.run([sys.executable, ELSEWHERE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.endswith("the same without what only POSIX systems have\n")
