"""``remuda demo`` as a command."""

from __future__ import annotations

import re
import sys

import pytest
from command import command


@pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")
def test_the_demo_races_and_kills_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    run = command("demo", "--seconds", "0.1", "--num-envs", "4")
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("CartPole-v1: 4 envs, ")
    assert re.findall(r"^(plain loop|remuda|gymnasium) ", run.stdout, re.MULTILINE) == [
        "plain loop",
        "remuda",
        "gymnasium",
    ]
    death_line = r"worker 0 \(pid (\d+)\) died, and with it the episodes of envs \[(.*?)\]: they ended truncated"
    ((pid, envs),) = re.findall(death_line, run.stdout)
    (successor,) = re.findall(r"worker \(pid (\d+)\) steps these envs again; .* the other 6 continued", run.stdout)
    assert envs == "0, 1" and pid != successor
    assert "systemd-oomd" not in run.output + caplog.text  # the demo itself killed the worker
