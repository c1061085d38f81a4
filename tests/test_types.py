"""The public names, as type checkers see them. `make types` runs this file, and other targets leave it out."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_public_names import MODULES, public_names

ROOT = Path(__file__).resolve().parent.parent
USER_PROGRAM = ROOT / "tests" / "user_program.py"
# Gymnasium's and Stable-Baselines3's types are partly unknown, and so are values that come from them.
UNKNOWN_TO_OTHERS = dict.fromkeys(
    [f"reportUnknown{kind}Type" for kind in ("Member", "Variable", "Argument", "Parameter", "Lambda")], "none"
)

# A program with errors that `type: ignore` expects: it is an error itself without one.
PROGRAM = """
import remuda
from remuda import Pool

Pool([], num_worker=2)  # type: ignore[call-arg]
remuda.Poool  # type: ignore[attr-defined]
remuda.sb3.SubprocessVecEnv  # type: ignore[attr-defined]
"""


@pytest.mark.watchdog(600)  # without mypy's cache it reads all of NumPy and Gymnasium
def test_mypy_finds_every_public_name(tmp_path: Path) -> None:
    names = [f"{module}.{name}" for module in MODULES for name in public_names(module)]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "".join(f"name_{i} = {name}\n" for i, name in enumerate(names)))
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", sys.executable]
    command += [str(program), str(USER_PROGRAM)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "Success: no issues found in 2 source files\n"), result.stderr


@pytest.mark.watchdog(600)  # it reads all of NumPy and Gymnasium
@pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_pyright_finds_no_error_in_a_users_program(tmp_path: Path) -> None:
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(json.dumps({"include": [str(USER_PROGRAM)], "typeCheckingMode": "strict", **UNKNOWN_TO_OTHERS}))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--level", "error"]
    result = subprocess.run([*command, "--project", str(settings)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "0 errors" in result.stdout
