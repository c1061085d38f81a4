"""``remuda run`` runs a program on remuda that names only Gymnasium."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import command_apart

PROGRAM = """
import sys
import gymnasium as gym

if __name__ == "__main__":
    for kind in (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv):
        envs = kind([lambda: gym.make("CartPole-v1")] * 4)
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        print(type(envs).__mro__[1].__module__, len(envs.processes), sys.argv[1:])
        envs.close()
    sys.exit(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_an_unedited_program_steps_its_envs_in_workers(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = command_apart("run", "--num-workers", "2", "program.py", "--seed", "1", cwd=tmp_path)
    assert done.stdout == "remuda.gymnasium.async_vector_env 2 ['--seed', '1']\n" * 2, done.stderr
    assert done.returncode == 3


def test_a_missing_program_is_refused(tmp_path: Path) -> None:
    done = command_apart("run", "program.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: expected a program in Python, got program.py, which is no file\n"
