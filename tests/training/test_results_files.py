"""Files of results: one run at a time has a file, and each row in it is whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from task_envs import Walk

from remuda import Task, evaluate_tasks

serially = partial(evaluate_tasks, num_envs=1, backend="serial")


def still(obs: Any) -> Any:
    return np.zeros((len(obs), 2))


def fail(obs: Any) -> NoReturn:
    raise AssertionError("all units were played before")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks the program")
def test_a_child_of_a_policy_does_not_keep_the_file_locked(tmp_path: Path) -> None:
    children = list[int]()

    def forking(obs: Any) -> Any:
        if not children:
            children.append(os.fork() or (signal.pause(), os._exit(0)))  # type: ignore[func-returns-value, arg-type]
        return still(obs)

    run = partial(serially, tasks=[Task("walk", Walk)], episodes=1, results=tmp_path / "a.jsonl", label="x")
    try:
        assert run(forking).rows == run(fail).rows
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


LITTLE_SPACE = """
import resource, signal, sys
import numpy, remuda
from task_envs import Walk

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
task, options = remuda.Task("walk", Walk), {"num_envs": 1, "backend": "serial", "label": "x", "results": sys.argv[1]}

def still(obs):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    return numpy.zeros((len(obs), 2))

remuda.evaluate_tasks(still, [task], episodes=9, **options)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="files of a limited size")
@pytest.mark.parametrize("size", range(600, 800, 20))
def test_a_row_for_which_space_is_missing_is_not_written_in_part(size: int, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    command = [sys.executable, "-c", LITTLE_SPACE, str(file), str(size)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert re.search("OSError: .*(No space left|File too large)", done.stderr)
    assert file.read_bytes().endswith(b"}\n")
    run = partial(serially, still, [Task("walk", Walk)], episodes=9, label="x")
    assert run(results=file).rows == run().rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_a_label_has_a_digest_of_weights_of_any_dtype(dtype: str, caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")

    class Policy:
        def __init__(self, weight: float, other: Any = None) -> None:
            self.weight, self.other = torch.tensor([weight]).to(getattr(torch, dtype)), other

        def __call__(self, obs: Any) -> Any:
            return still(obs)

        def state_dict(self) -> Any:
            return {"weight": self.weight, "other": self.other}

    def label(*arguments: Any) -> str | None:
        return serially(Policy(*arguments), [Task("walk", Walk)], episodes=1).label

    assert label(1.0) == label(1.0) != label(2.0)
    assert not caplog.records
    label(1.0, object())
    assert "was made without the values of object; give label=" in caplog.text
