"""``remuda run`` and ``remuda trace`` run a program: on remuda though it names only Gymnasium, and traced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import command_apart
from traces import names

UNEDITED = """
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
    (tmp_path / "program.py").write_text(UNEDITED)
    done = command_apart("run", "--num-workers", "2", "program.py", "--seed", "1", cwd=tmp_path)
    assert done.stdout == "remuda.gymnasium.async_vector_env 2 ['--seed', '1']\n" * 2, done.stderr
    assert done.returncode == 3


PROGRAM = """
import sys
import helper
import gymnasium
import remuda

if __name__ == "__main__":
    print(sys.argv[1:], helper.__name__)
    envs = remuda.gymnasium.AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2, num_workers=1)
    envs.reset(seed=0)
    with remuda.span("train"):
        for _ in range(3):
            envs.step(envs.action_space.sample())
    envs.close()
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    (tmp_path / "helper.py").touch()
    return path


def trace(*arguments: str, cwd: Path) -> Any:
    variables = {**os.environ, "PYTHONPATH": str(cwd)} if "-m" in arguments else os.environ
    return command_apart("trace", *arguments, cwd=cwd, env=variables)


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
@pytest.mark.parametrize("how", ["file", "module"])
def test_a_traced_program_runs_unchanged(how: str, program: Path, tmp_path: Path) -> None:
    what = [str(program)] if how == "file" else ["-m", "program"]
    done = trace("-o", str(tmp_path / "out.json"), *what, "3", "--output", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "['3', '--output'] helper\n"
    assert f"the trace: {tmp_path / 'out.json'}" in done.stderr
    assert names(tmp_path / "out.json", "span") == ["train"]
    assert names(tmp_path / "out.json", "batch") == ["batch of 2"] * 4


STEPPING = """
import os
import signal
import sys
import remuda
from pool_envs import hooked

def hang(env, action):
    if action == 1:
        print("hangs", flush=True)
        signal.pause()

def handle():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

def ignore():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def fork():
    if (child := os.fork()) == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM

pool = remuda.Pool(hooked(2, [0, 1], step=hang), num_workers=1)
pool.reset()
for _ in range(3):
    pool.step([0, 0])
{before}
pool.step([{action}] * 2)
print("waits", flush=True)
sys.stdin.readline()
sys.exit(5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
@pytest.mark.parametrize(
    ("before", "action", "status"),
    [("", 0, -signal.SIGTERM), ("", 1, -signal.SIGTERM), ("handle()", 1, 7), ("ignore()", 0, 5), ("fork()", 0, 5)],
)
def test_a_program_ended_by_sigterm_leaves_its_trace(before: str, action: int, status: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STEPPING.replace("{before}", before).replace("{action}", str(action)))
    command = [sys.executable, "-m", "remuda", "trace", "program.py"]
    pipes: Any = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, cwd=tmp_path, **pipes, text=True, env=environment) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == ("hangs\n" if action else "waits\n")
        if before != "fork()":
            running.send_signal(signal.SIGTERM)
        _, err = running.communicate("\n")
    assert running.returncode == status
    assert err.count("the trace: ") == 1 and "Traceback" not in err
    assert names(tmp_path / "trace.json", "batch")[:4] == ["batch of 2"] * 4
    assert [path.name for path in tmp_path.iterdir() if "trace" in path.name] == ["trace.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.py"], "got missing.py, which is no file"),
        (["trace", "-o", "nowhere/out.json", "program.py", "0"], "make it first"),
        (["trace", "-m", "not_there"], "expected a module with -m, got not_there, and Python finds none of that name"),
        (["trace", "-m", "not_there.at_all"], "expected a module with -m, got not_there.at_all"),
    ],
)
def test_missing_programs_modules_and_folders_are_refused(
    arguments: list[str], message: str, program: Path, tmp_path: Path
) -> None:
    done = command_apart(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, message in done.stderr) == (2, "", True)
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("sys.exit(0)", 0), ("", 1)])
def test_a_trace_that_cannot_be_written_does_not_change_the_exit_status(end: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "program.py").write_text(f"import os, sys; os.rmdir('gone'); {end}")
    done = trace("-o", "gone/out.json", "program.py", cwd=tmp_path)
    assert done.returncode == status
    assert "error: the trace could not be written: " in done.stderr and "gone/.out.json" in done.stderr
    assert "Traceback" not in done.stderr
