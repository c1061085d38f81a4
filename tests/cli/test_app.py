"""The `remuda` command as a whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from command import command, command_apart

import remuda


def test_python_runs_remuda_as_a_module() -> None:
    assert command_apart("--version").stdout == f"remuda {remuda.__version__}\n"
    assert remuda.__version__ == metadata.version("remuda-rl")


def test_without_a_command_the_commands_are_listed() -> None:
    run = command()
    assert (run.exit_code, run.stdout) == (2, "")
    commands = re.findall(r"^ {4}(\w+) +[A-Z]", run.stderr, re.MULTILINE)
    assert commands == ["demo", "bench", "doctor", "replay", "run", "trace", "top"]
    for name in commands:
        assert command(name, "--help").stdout.startswith(f"usage: remuda {name} ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "CartPole-v1", "--num-envs", "0"], "argument --num-envs/-n: expected an int from 1 up, got '0'"),
        (["bench", "CartPole-v1", "--seconds", "nan"], "argument --seconds: expected a number from 0.01 up, got 'nan'"),
        (["replay", "file", "--until-step", "two"], "argument --until-step: expected an int from 1 up, got 'two'"),
        (["doctor", "CartPole-v1", "--resets", "3"], "argument --resets: expected an int from 8 up, got '3'"),
        (["doctor", "CartPole-v1", "--beside", "math:none"], "error: math:none: "),
        (["bench", "CartPole-v1", "--num", "2"], "unrecognized arguments: --num 2"),
        (["rodeo"], "invalid choice: 'rodeo'"),
    ],
)
def test_invalid_options_are_named(arguments: list[str], message: str) -> None:
    run = command(*arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.stderr


WITHOUT = """
import sys
for package in {packages}:
    sys.modules[package] = None
from remuda.cli.app import main
main(["replay", {file!r}])
"""


def test_replay_needs_only_the_dependencies_of_remuda(tmp_path: Path) -> None:
    """Error messages suggest `remuda replay`, so it must work with only remuda's dependencies installed."""
    needed = {"numpy", "gymnasium", "cloudpickle", "farama-notifications", "typing_extensions"}
    others = {
        module
        for module, (package, *_) in metadata.packages_distributions().items()
        if package.lower() not in needed | {"remuda-rl", "pip", "setuptools"}
    }
    assert {"rich", "matplotlib", "pytest"} <= others
    code = WITHOUT.format(packages=sorted(others), file=str(tmp_path / "none"))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.startswith("error: [Errno 2] No such file")) == (2, True), run.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["top", "--help"]])
def test_help_and_version_end_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "remuda", *arguments]
    # With PYTHONUNBUFFERED, argparse ignores the closed pipe.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=env)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
