"""Makes ``chaos`` importable here and in worker processes, however pytest imports its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
