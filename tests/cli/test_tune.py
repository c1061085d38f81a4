"""``remuda tune`` as a command."""

from __future__ import annotations

import ast
import html
import json
import shlex
import sys
from pathlib import Path

import pytest
from command import Outcome, command

QUICK = ("--seconds", "0.02", "--num-envs", "2")


def invoke(*arguments: str) -> Outcome:
    return command("tune", *arguments)


def test_tune_writes_the_figures_picture_and_page(tmp_path: Path) -> None:
    figures, picture, page = (tmp_path / f"tune.{suffix}" for suffix in ("json", "png", "html"))
    arguments = ("CartPole-v1", *QUICK, "--policy-ms", "0.1", "--json", str(figures), "--plot", str(picture))
    run = invoke(*arguments, "--html", str(page))
    assert run.exit_code == 0, run.output
    found = json.loads(figures.read_text())
    ast.parse(found["code"])
    assert "pool = remuda.Pool(" in run.stdout
    assert found["best"] in found["trials"]
    assert all(trial["steps_per_second"] > 0 for trial in found["trials"])
    assert found["reasons"]
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    written = html.unescape(page.read_text())
    assert found["code"] in written
    assert shlex.join(["remuda", "tune", *arguments, "--html", str(page)]) in written


def test_without_rich_it_prints_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    run = invoke("CartPole-v1", *QUICK)
    assert run.exit_code == 0, run.output
    lead, _, header, *_ = run.stdout.splitlines()
    assert "env steps per second with 2 envs, " in lead and header.split()[:3] == ["envs", "workers", "spares"]
    assert "\n\nimport gymnasium\nimport remuda\n\npool = remuda.Pool(" in run.stdout
    assert run.stderr.startswith("[0/10] 2 envs, workers by auto\n[1/10] ")


def test_an_env_that_cannot_be_stepped_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_wreck.py").write_text(
        "import gymnasium\n"
        "class Wreck(gymnasium.Wrapper):\n"
        "    def step(self, action):\n"
        "        raise ValueError('not today')\n"
        "def make():\n"
        "    return Wreck(gymnasium.make('CartPole-v1'))\n"
    )
    monkeypatch.chdir(tmp_path)
    run = invoke("my_wreck:make", *QUICK)
    assert run.exit_code == 1
    assert "error: my_wreck:make cannot be stepped at random" in run.stderr
    assert "not today" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPol-v1"], "error: CartPol-v1: "),
        (["nowhere:make"], "error: nowhere:make: No module named 'nowhere'"),
        (["CartPole-v1", "--plot", "tune.jpg"], "error: expected a plot file ending in .png or .svg"),
        (["CartPole-v1", "--policy-ms", "-1"], "expected a number from 0.0 up"),
    ],
)
def test_refusals_come_before_anything_runs(arguments: list[str], message: str) -> None:
    run = invoke(*arguments)
    assert run.exit_code == 2
    assert message in run.stderr


def test_the_first_of_two_errors_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker dies in its step. The second death is found when the pool is closed, and must not hide the first."""
    (tmp_path / "my_deaths.py").write_text(
        "import gymnasium, os\n"
        "class Dying(gymnasium.Wrapper):\n"
        "    def step(self, action):\n"
        "        os.kill(os.getpid(), 9)\n"
        "def make():\n"
        "    return Dying(gymnasium.make('CartPole-v1'))\n"
    )
    monkeypatch.chdir(tmp_path)
    run = invoke("my_deaths:make", *QUICK)
    assert run.exit_code == 1
    assert "died while in step" in run.stderr
