"""``remuda demo`` as a command."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command import command

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_the_demo_races_and_kills_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    run = command("demo", "--seconds", "0.1", "--num-envs", "4")
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("CartPole-v1: 4 envs, ")
    race, kill = run.stdout.split("\nFour CartPoles")
    assert re.findall(r"^(plain loop|remuda|gymnasium) ", race, re.M) == ["plain loop", "remuda", "gymnasium"]
    assert "systemd-oomd" not in run.output + caplog.text  # the demo itself killed the worker
    shown = README.read_text().partition("```text\n")[2].partition("```")[0]
    assert shape(shown) in shape(kill)


def shape(output: str) -> str:
    """Returns output with one space between words, and without what varies: process ids."""
    return re.sub(r"\bpid \d+", "pid", " ".join(output.split()))
