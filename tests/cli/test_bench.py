"""``remuda bench`` as a command."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from command import command

QUICK = ("--seconds", "0.1", "--num-envs", "4", "--num-workers", "2")


invoke = partial(command, "bench")


def test_bench_races_and_writes_the_figures_and_a_picture(tmp_path: Path) -> None:
    figures, picture = tmp_path / "bench.json", tmp_path / "bench.png"
    outputs = ("--json", str(figures), "--plot", str(picture))
    run = invoke("CartPole-v1", *QUICK, "--against", "gymnasium", *outputs)
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("CartPole-v1: 4 envs, 2 workers")
    assert run.stderr.startswith("[1/21] starting plain loop\n")
    found = json.loads(figures.read_text())["contenders"]
    shown = [(one["name"], one["error"], len(one["rounds"])) for one in found]
    assert shown == [("plain loop", None, 5), ("remuda", None, 5), ("gymnasium", None, 5)]
    assert found[1]["num_workers"] == 2
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


def test_without_names_all_installed_peers_are_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda._bench.contenders.Sb3.module", "no_such_module")
    run = invoke("CartPole-v1", *QUICK, "--backend", "thread")
    assert run.exit_code == 0, run.output
    assert re.findall(r"^ *(gymnasium|sb3) ", run.stdout, re.MULTILINE) == ["gymnasium"]
    run = invoke("CartPole-v1", "--against", "gymnasium,sb3")
    assert (run.exit_code, run.stderr) == (2, "error: peer 'sb3' is not installed: pip install \"stable-baselines3\"\n")


def test_an_env_that_exits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_corral.py").write_text(
        "import sys\nfrom gymnasium.envs.classic_control.cartpole import CartPoleEnv\n"
        "class Leaving(CartPoleEnv):\n    def step(self, action):\n        sys.exit(3)\n"
    )
    monkeypatch.chdir(tmp_path)
    run = invoke("my_corral:Leaving", *QUICK, "--against", "")
    assert run.exit_code == 1, run.output
    assert "plain loop failed: SystemExit: 3" in run.stdout
    assert "remuda failed: " in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CartPol-v1"], "error: CartPol-v1: "),
        (["CartPole-v1", "--against", "gym"], "error: unknown peer 'gym': expected one of "),
        (["CartPole-v1", "--plot", "bench.jpg"], "error: expected a plot file ending in .png or .svg"),
        (["CartPole-v1", "--plot", "bench.png"], "error: --plot needs matplotlib: pip install matplotlib\n"),
        (["CartPole-v1", "--json", "file/bench.json"], "error: cannot write file/bench.json"),
        (["CartPole-v1", "--plot", "missing/bench.png"], "error: cannot write missing/bench.png"),
        (["CartPole-v1", "--num-envs", "2", "--num-workers", "3"], "error: expected at most one worker per env"),
    ],
)
def test_refusals_are_one_line_before_anything_runs(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    run = invoke(*arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith(message)
    assert run.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
