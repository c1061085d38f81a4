"""Runs the programs of docs/other-libraries.md beside the libraries, and kills one of their workers in a step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "other-libraries.md"

if find_spec("torchrl") is None or find_spec("skrl") is None:
    pytest.skip("the libraries are in an environment of their own: make neighbours-test", allow_module_level=True)

# The first env that makes 40 steps kills its worker. Later ones leave a file.
HEAD = """
import os, signal
from pathlib import Path
import gymnasium

class DiesOnce(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        killed = Path(DIRECTORY, "killed")
        if self.steps == 40:
            try:
                killed.touch(exist_ok=False)
            except FileExistsError:
                Path(DIRECTORY, "went on").touch()
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)
"""
MADE = 'make_env = lambda: gymnasium.make("CartPole-v1")'


def program(section: str) -> str:
    text = PAGE.read_text()
    found = re.search(rf"^## {section}\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None and MADE in found[1]
    return found[1]


@pytest.mark.watchdog(400)  # RLlib starts a node of Ray
@pytest.mark.parametrize("section", ["TorchRL", "RLlib", "skrl"])
def test_training_goes_on_after_a_kill(section: str, tmp_path: Path) -> None:
    code = program(section).replace(MADE, 'make_env = lambda: DiesOnce(gymnasium.make("CartPole-v1"))')
    path = tmp_path / "program.py"
    path.write_text(HEAD.replace("DIRECTORY", repr(str(tmp_path))) + code)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "killed by SIGKILL" in done.stderr
    assert (tmp_path / "went on").exists(), "no env has made 40 steps after the kill"
    if section == "TorchRL":
        assert len(done.stdout.split("torch.Size([8, 32])")) == 11
    if section == "RLlib":
        assert len(done.stdout.split()) == 4
