"""``remuda bench`` as a command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import Outcome, command

QUICK = ("--seconds", "0.1", "--rounds", "2", "--num-envs", "4", "--num-workers", "2")


def invoke(*arguments: str) -> Outcome:
    return command("bench", *arguments)


def test_bench_writes_the_figures_and_a_picture(tmp_path: Path) -> None:
    figures, picture = (tmp_path / f"bench.{suffix}" for suffix in ("json", "png"))
    files = ("--json", str(figures), "--plot", str(picture))
    run = invoke("CartPole-v1", *QUICK, "--against", "gymnasium-sync", *files)
    assert run.exit_code == 0, run.output
    assert "CartPole-v1: 4 envs, 2 workers" in run.stdout
    found = json.loads(figures.read_text())
    assert [contender["name"] for contender in found["contenders"]] == [
        "plain loop",
        "remuda",
        "gymnasium-sync",
    ]
    assert all(contender["error"] is None for contender in found["contenders"])
    assert all(len(contender["rounds"]) == 2 for contender in found["contenders"])
    assert found["contenders"][1]["num_workers"] == 2
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_other_backends_are_measured(backend: str) -> None:
    run = invoke("CartPole-v1", *QUICK, "--against", "", "--backend", backend)
    assert run.exit_code == 0, run.output


def test_a_start_method_applies_to_all_contenders() -> None:
    run = invoke("CartPole-v1", *QUICK, "--start-method", "fork")
    assert run.exit_code == 0, run.output
    assert "failed" not in run.output


def test_a_factory_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_corral.py").write_text("import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n")
    monkeypatch.chdir(tmp_path)
    run = invoke("my_corral:make", *QUICK, "--against", "")
    assert run.exit_code == 0, run.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPol-v1"], "error: CartPol-v1: "),
        (["nowhere:make"], "error: nowhere:make: No module named 'nowhere'"),
        (["CartPole-v1", "--against", "gym"], "error: unknown peer 'gym': expected one of "),
        (["CartPole-v1", "--plot", "bench.jpg"], "error: expected a plot file ending in .png or .svg"),
        (
            ["CartPole-v1", "--json", "file/bench.json"],
            "error: cannot write file/bench.json",
        ),
        (
            ["CartPole-v1", "--plot", "."],
            "error: cannot write .: expected the name of a file for --plot, got the directory",
        ),
        (
            ["CartPole-v1", "--num-envs", "2", "--num-workers", "3"],
            "error: expected at most one worker per env",
        ),
    ],
)
def test_refusals_are_one_line_before_anything_runs(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    run = invoke(*arguments)
    assert run.exit_code == 2
    assert run.stdout == ""
    assert run.stderr.startswith(message)
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_no_folder_is_made_for_a_file(option: str, tmp_path: Path) -> None:
    run = invoke("CartPole-v1", option, str(tmp_path / "missing" / "file.png"))
    assert (run.exit_code, run.stdout) == (2, "")
    assert "missing; make it first" in run.stderr
    assert list(tmp_path.iterdir()) == []


ENVS_THAT_EXIT = """
import os, sys, gymnasium
class Leaving(gymnasium.Wrapper):
    def __init__(self, env, leave):
        super().__init__(env)
        self.leave = leave
    def step(self, action):
        self.leave(3)
def os_exit(): return Leaving(gymnasium.make("CartPole-v1"), os._exit)
def sys_exit(): return Leaving(gymnasium.make("CartPole-v1"), sys.exit)
def at_once(): os._exit(3)
"""


@pytest.mark.parametrize(
    ("factory", "cause"), [("os_exit", "the env called os._exit(3)"), ("sys_exit", "the env called sys.exit(3)")]
)
def test_an_env_that_exits_is_named(factory: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving.py").write_text(ENVS_THAT_EXIT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    run = invoke(f"leaving:{factory}", *QUICK, "--against", "")
    assert run.exit_code == 1, run.output
    assert f"plain loop failed: EnvExitError: {cause}" in run.stdout
    assert "remuda failed: " in run.stdout


def test_an_env_that_exits_when_it_is_built_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving.py").write_text(ENVS_THAT_EXIT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving", raising=False)
    run = invoke("leaving:at_once")
    assert run.exit_code == 2
    assert run.stderr == "error: leaving:at_once: EnvExitError: the env called os._exit(3)\n"


def test_a_refusal_leaves_no_files(tmp_path: Path) -> None:
    invoke("CartPol-v1", "--json", str(tmp_path / "bench.json"))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_peer_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda._bench.peers.Sb3.module", "no_such_module")
    run = invoke("CartPole-v1", "--against", "gymnasium,sb3")
    assert run.exit_code == 2
    assert run.stderr == "error: peer 'sb3' is not installed: pip install \"stable-baselines3\"\n"


def test_missing_packages_are_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = invoke("CartPole-v1", "--plot", str(tmp_path / "bench.png"))
    message = "error: --plot needs matplotlib: pip install matplotlib\n"
    assert (run.exit_code, run.stdout, run.stderr) == (2, "", message)


def test_without_rich_it_prints_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    run = invoke("CartPole-v1", "--num-envs", "2", "--seconds", "0.05", "--rounds", "1", "--backend", "serial")
    assert run.exit_code == 0
    assert run.stdout.startswith("CartPole-v1: 2 envs, ")
    assert re.search(r"^\[1/\d+\] ", run.stderr, re.MULTILINE)


def test_the_entry_point_imports_no_heavy_packages() -> None:
    code = "import sys, remuda.cli.app; print(sorted({'rich', 'matplotlib'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    assert run.stdout == "[]\n"
