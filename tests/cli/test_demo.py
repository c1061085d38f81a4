"""``remuda demo`` as a command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from command import command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

QUICK = ("--seconds", "0.1", "--num-envs", "4")


def test_the_demo_races_kills_a_worker_and_writes_the_figures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = command("demo", *QUICK, "--dir", str(tmp_path / "new"))
    assert run.exit_code == 0, run.output
    assert "CartPole-v1: 4 envs, " in run.stdout
    contenders = json.loads((tmp_path / "new" / "bench.json").read_text())["contenders"]
    assert [one["name"] for one in contenders] == ["plain loop", "remuda", "gymnasium"]
    assert (tmp_path / "new" / "bench.png").read_bytes().startswith(b"\x89PNG\r\n")
    death_line = r"worker 0 \(pid (\d+)\) died, and with it the episodes of envs \[(.*?)\]: they ended truncated"
    ((pid, envs),) = re.findall(death_line, run.stdout)
    (successor,) = re.findall(r"worker \(pid (\d+)\) steps these envs again; .* the other 6 continued", run.stdout)
    assert envs == "0, 1" and pid != successor
    assert "systemd-oomd" not in run.output + caplog.text  # the demo itself killed the worker


def test_without_rich_and_matplotlib_the_demo_suggests_installing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("rich", "matplotlib"):
        monkeypatch.setitem(sys.modules, package, None)
    run = command("demo", *QUICK, "--dir", str(tmp_path))
    assert run.exit_code == 0, run.output
    assert "With a live display and a picture: pip install rich matplotlib" in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
