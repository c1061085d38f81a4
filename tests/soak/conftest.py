"""Makes ``chaos`` and ``pool_envs`` importable here and in worker processes, however pytest imports its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
