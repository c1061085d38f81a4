"""Runs programs of the documentation beside the libraries that train there, and kills a worker in a step."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"

if find_spec("torchrl") is None and find_spec("sample_factory") is None:
    pytest.skip("the libraries are in environments of their own: make neighbours-test", allow_module_level=True)

# The first env that makes 40 steps kills its worker. Later ones leave a file.
HEAD = """
import itertools, os, signal
from pathlib import Path

def dying_once(env):
    steps, step = itertools.count(1), env.step

    def step_or_die(action):
        if next(steps) == 40:
            try:
                Path(DIRECTORY, "killed").touch(exist_ok=False)
            except FileExistsError:
                Path(DIRECTORY, "went on").touch()
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return step(action)

    env.step = step_or_die
    return env
"""
MADE = re.compile(r"^make_env = (.*)$", re.MULTILINE)


def program(page: str, section: str) -> str:
    """Returns the program of a section, in which one env dies once."""
    found = re.search(rf"^##? {section}\n.*?^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    code, made = MADE.subn(r"made = \1\nmake_env = lambda: dying_once(made())", found[1])
    assert made == 1
    return code


@pytest.mark.watchdog(400)  # RLlib starts a node of Ray
@pytest.mark.parametrize(
    ("section", "module", "page"),
    [
        ("TorchRL", "torchrl", "other-libraries.md"),
        ("RLlib", "ray", "other-libraries.md"),
        ("skrl", "skrl", "other-libraries.md"),
        ("rl_games", "rl_games", "other-libraries.md"),
        ("Sample Factory", "sample_factory", "other-libraries.md"),
        ("AgileRL", "agilerl", "recipes/agilerl.md"),
    ],
)
def test_training_goes_on_after_a_kill(section: str, module: str, page: str, tmp_path: Path) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is in the other environment")
    path = tmp_path / "program.py"
    path.write_text(HEAD.replace("DIRECTORY", repr(str(tmp_path))) + program(page, section))
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
    if section == "rl_games":
        assert "MAX EPOCHS NUM!" in done.stdout
