"""Makes the envs of tests importable here and in workers, however tests are imported, and what stands for ALF."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent

sys.path.insert(0, str(HERE))
sys.path.append(str(HERE / "alf_stand_in"))  # last: an ALF that is installed comes first
