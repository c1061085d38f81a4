"""What the tests of faults share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # workers, which inherit it, find pool_envs

from programs import script  # noqa: F401 - a fixture for all tests here
