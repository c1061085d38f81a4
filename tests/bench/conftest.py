"""Makes ``bench_fakes`` and the scripts of ``benchmarks/`` importable, here and in worker processes."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
_BENCHMARKS = _HERE.parents[1] / "benchmarks"
sys.path[:0] = [str(_HERE), str(_BENCHMARKS), str(_BENCHMARKS / "published")]
