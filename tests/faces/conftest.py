"""Makes the envs of tests importable here and in workers, however tests are imported, and what stands for ALF."""

from __future__ import annotations

import sys
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"

sys.path.insert(0, str(SUPPORT))
sys.path.append(str(SUPPORT / "alf_stand_in"))  # last: an ALF that is installed comes first
