"""Makes the envs of the tests importable in the tests and in workers, and adds a stand-in for ALF."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"

sys.path.insert(0, str(SUPPORT))
sys.path.append(str(SUPPORT / "alf_stand_in"))  # last, so that an installed ALF is preferred

# DI-engine and ML-Agents have environments of their own: `make ding-test` and `make mlagents-test`.
collect_ignore = [framework for framework in ("ding", "mlagents") if find_spec(framework) is None]
# So has Gymnasium 0.29: `make old-gymnasium-test`.
if not version("gymnasium").startswith("0."):
    collect_ignore += ["gymnasium/test_old_gymnasium.py", "sb3/test_old_gymnasium.py"]
