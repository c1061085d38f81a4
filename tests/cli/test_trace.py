"""``remuda trace``: of a program as it is, and of several traces one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import command
from traces import names

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


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remuda", "trace", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(cwd)} if "-m" in arguments else os.environ
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
@pytest.mark.parametrize("how", ["file", "module"])
def test_a_program_runs_as_it_does_by_itself_and_its_pools_are_traced(how: str, program: Path, tmp_path: Path) -> None:
    what = [str(program)] if how == "file" else ["-m", "program"]
    done = run("-o", str(tmp_path / "out.json"), *what, "3", "--output", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "['3', '--output'] helper\n"
    assert f"the trace: {tmp_path / 'out.json'}" in done.stderr
    assert names(tmp_path / "out.json", "span") == ["train"]
    assert names(tmp_path / "out.json", "batch") == ["batch of 2"] * 4


def test_what_cannot_be_run_or_written_is_refused(tmp_path: Path, program: Path) -> None:
    missing = command("trace", str(tmp_path / "missing.py"))
    assert (missing.exit_code, missing.stdout) == (2, "") and "which is no file" in missing.stderr
    nowhere = run("-o", str(tmp_path / "nowhere" / "out.json"), str(program), "0", cwd=tmp_path)
    assert nowhere.returncode == 2 and "make it first" in nowhere.stderr and nowhere.stdout == ""


def test_a_trace_that_cannot_be_written_changes_nothing_of_how_the_program_ends(tmp_path: Path, program: Path) -> None:
    (tmp_path / "gone").mkdir()
    program.write_text("import os, sys; os.rmdir('gone'); sys.exit(int(sys.argv[1]))")
    for status, expected in (("3", 3), ("0", 0)):
        (tmp_path / "gone").mkdir(exist_ok=True)
        done = run("-o", "gone/out.json", str(program), status, cwd=tmp_path)
        assert done.returncode == expected
        assert "error: the trace could not be written: " in done.stderr and "gone/.out.json" in done.stderr
        assert "Traceback" not in done.stderr
    program.write_text("import os; os.rmdir('gone')")
    (tmp_path / "gone").mkdir()
    assert run("-o", "gone/out.json", str(program), cwd=tmp_path).returncode == 1


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("not_there", "not_there.at_all"):
        done = run("-m", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"error: expected a module with -m, got {name}, and Python finds none of that name\n"
    assert not (tmp_path / "trace.json").exists()


def test_it_merges(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(
            '{"traceEvents": [{"ph": "X", "cat": "c", "name": "' + name + '", "ts": 1, "dur": 1}]}'
        )
    merged = tmp_path / "merged"
    run = command("trace", "-o", str(merged), "--merge", str(tmp_path / "a"), str(tmp_path / "b"))
    assert (run.exit_code, run.stdout) == (0, f"{merged}\n")
    assert names(merged, "c") == ["a", "b"]
    alone = command("trace", "--merge", str(tmp_path / "a"))
    assert alone.exit_code == 2 and "expected two traces or more to merge, got 1" in alone.stderr
    (tmp_path / "a").write_text("no")
    bad = command("trace", "-o", str(merged), "--merge", str(tmp_path / "a"), str(tmp_path / "b"))
    assert bad.exit_code == 2 and "to be a trace in JSON" in bad.stderr
