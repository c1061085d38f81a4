"""``remuda bench``, ``remuda demo`` and ``remuda doctor`` as commands."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from command import command
from doc_pages import output_blocks, shape

README = Path(__file__).parents[2] / "README.md"
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


# -- the demo -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_the_demo_races_and_kills_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    run = command("demo", "--seconds", "0.1", "--num-envs", "4")
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("CartPole-v1: 4 envs, ")
    race, kill = run.stdout.split("\nFour CartPoles")
    assert re.findall(r"^(plain loop|remuda|gymnasium) ", race, re.M) == ["plain loop", "remuda", "gymnasium"]
    assert "systemd-oomd" not in run.output + caplog.text  # the demo itself killed the worker
    (shown,) = output_blocks(README)
    assert shape(shown) in shape(kill)


# -- the doctor ------------------------------------------------------------------------------------------

DRAWINGS = """
from drawing_envs import ContextEnv
def wrong(): return ContextEnv(1)
def other(): return ContextEnv(2)
"""


def test_an_env_that_draws_wrong_beside_another_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_drawings.py").write_text(DRAWINGS)
    monkeypatch.chdir(tmp_path)
    run = command("doctor", "my_drawings:wrong", "--beside", "my_drawings:other", "--resets", "8")
    assert run.exit_code == 1, run.output
    assert "wrong   picture when another env draws: 192 of 192 values differ, by up to" in run.stdout
    assert "advice: num_workers=num_envs (or None)" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("something is wrong: 3 wrong, ")


def test_json_reports_an_env_made_from_an_id() -> None:
    run = command("doctor", "CartPole-v1", "--resets", "8", "--json")
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert not report["wrong"]
    verdicts = {finding["what"]: finding["verdict"] for finding in report["findings"]}
    assert set(verdicts.values()) == {"right"} and "picture when another env is closed" in verdicts
    assert len(report["workers"]) == 2
