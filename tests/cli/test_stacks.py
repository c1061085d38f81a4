"""``remuda stacks`` shows the stacks of another program's workers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

import pytest
from command import command
from programs import Script

if sys.platform != "linux":
    pytest.skip("it reads /proc", allow_module_level=True)

from watched import program

from remuda._watch import stacks

Start = Callable[..., Script]


@pytest.fixture
def hung(script: Start) -> Script:
    """Starts a program in which env 5 hangs in Python."""
    running = script(program(hangs=True))
    running.read_line()
    running.write_line()
    assert running.read_line() == "hangs"
    return running


def end(running: Script) -> None:
    running.write_line()
    running.await_end()  # the fixture killed its worker


def test_the_slowest_env_comes_first_and_the_program_continues(hung: Script) -> None:
    for _ in range(2):
        run = command("stacks", str(hung.process.pid), "--python")
        assert run.exit_code == 0, run.output
        heading, first, *others = run.stdout.split("\n\n")
        assert heading == f"pool herd of process {hung.process.pid}: 6 envs in 3 process workers"
        assert re.match(r"worker 2 \(pid \d+\): step env 5 for [\d.]+ ", first)
        frames = [line.split(" in ")[-1] for line in first.splitlines()[1:]]
        assert frames[:2] == ["hang_here", "step"]
        idle = re.findall(r"worker (\d) \(pid \d+\): waits for something to do", "\n".join(others))
        assert sorted(idle) == ["0", "1"]
    end(hung)


def test_py_spy_also_shows_the_program(hung: Script) -> None:
    assert stacks.py_spy() is not None  # tests/requirements.txt names it
    run = command("stacks", str(hung.process.pid))
    assert f"the program (pid {hung.process.pid})" in run.stdout
    worker = run.stdout[run.stdout.index("worker 2") :]
    assert "hang_here" in worker.split("\n\n")[0]
    end(hung)


def test_without_py_spy_workers_report_their_own_stacks(hung: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    run = command("stacks", str(hung.process.pid))
    assert "in hang_here" in run.stdout and 'pip install "remuda-rl[stacks]"' in run.stdout
    end(hung)


def test_if_py_spy_fails_workers_report_their_own_stacks(hung: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: "/bin/false")
    assert "in hang_here" in command("stacks", str(hung.process.pid)).stdout
    end(hung)


def test_json_has_the_stacks(hung: Script) -> None:
    (pool,) = json.loads(command("stacks", str(hung.process.pid), "--python", "--json").stdout)
    assert pool["pid"] == hung.process.pid
    assert (pool["stacks"][0]["worker"], pool["stacks"][0]["doing"]) == (2, "step env 5")
    assert "hang_here" in pool["stacks"][0]["stack"]
    end(hung)
