"""``remuda top`` in a terminal, beside a program that does not cooperate with it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import command
from programs import Script

if sys.platform != "linux":
    pytest.skip("it reads /proc", allow_module_level=True)

from watched import program, terminal

Start = Callable[..., Script]


def end(running: Script) -> None:
    running.write_line()
    assert running.read_line() == "closed"
    running.write_line()
    code, _, err = running.await_end()
    assert code == 0, err


def test_top_shows_the_figures_and_the_verdict_in_80_columns(script: Start, tmp_path: Path) -> None:
    running = script(program())
    running.read_line()
    pid = running.process.pid
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        text = top.await_text(re.compile(rf"^herd +{pid} +6 +[\d,]+ +\d+% +[\d.]+ m?s +0 ", re.MULTILINE).search)
        assert all(heading in text.splitlines()[0] for heading in ("pool", "steps/s", "waits", "p99", "longest call"))
        top.await_text(re.compile(rf"herd, process {pid}: (slow env|worker count|env step|policy): ").search)
        os.kill(pid, signal.SIGSTOP)
        top.await_text(lambda text: "stopped, by SIGSTOP" in text and f"kill -CONT {pid}" in text)
        (pool,) = json.loads(command("top", str(pid), "--json", "--interval", "0.05").stdout)
        assert pool["is_stopped"]
        os.kill(pid, signal.SIGCONT)
        top.await_text(lambda text: "stopped" not in text)
        top.process.send_signal(signal.SIGINT)
        assert top.await_end()[0] == 0
    end(running)


def test_top_names_an_env_that_hangs(script: Start, tmp_path: Path) -> None:
    running = script(program(hangs=True))
    running.read_line()
    running.write_line()
    assert running.read_line() == "hangs"
    with terminal("top", str(running.process.pid), "--interval", "0.2", cwd=tmp_path) as top:
        top.await_text(re.compile(r"step env 5 [\d.]+ m?s").search)
        os.kill(running.process.pid, signal.SIGKILL)
        code, text = top.await_end()
    assert code == 0 and "all pools are closed" in text
    running.await_end()


TWO = """
with Pool(counting(3), num_workers=1, name="other") as other:
    other.reset()
    with Pool(counting(2), num_workers=1, name="herd") as pool:
        pool.reset()
        say("open")
        input()
    say("closed")
    input()
say("over")
input()
"""


def test_all_pools_are_shown_until_they_close(script: Start, tmp_path: Path) -> None:
    running = script(TWO)
    running.read_line()
    pid = running.process.pid
    herd, other = (re.compile(rf"^{name} +{pid} ", re.MULTILINE) for name in ("herd", "other"))
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        top.await_text(lambda text: herd.search(text) and other.search(text))
        running.write_line()
        assert running.read_line() == "closed"
        top.await_text(lambda text: other.search(text) and not herd.search(text))
        running.write_line()
        assert running.read_line() == "over"
        code, text = top.await_end()
        assert code == 0 and "all pools are closed" in text
    running.write_line()
    running.await_end()


def assert_refused(reason: str, *arguments: str) -> None:
    run = command("top", *arguments)
    assert run.exit_code == 2 and reason in run.stderr


def test_a_terminal_that_cannot_be_drawn_on_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal("top", "1", cwd=tmp_path, TERM="dumb") as top:
        code, text = top.await_end()
    assert code == 2 and "got TERM=dumb" in text and "--json" in text
    assert_refused("expected a terminal to draw on", "1")
    monkeypatch.setitem(sys.modules, "rich", None)
    assert_refused('pip install "remuda-rl[top]"; or use --json')


def test_json_needs_no_terminal(script: Start) -> None:
    running = script(program())
    running.read_line()
    run = command("top", str(running.process.pid), "--json", "--interval", "0.1")
    (pool,) = json.loads(run.stdout)
    assert (run.exit_code, pool["name"], pool["setup"]["envs_of_worker"]) == (0, "herd", [2, 2, 2])
    assert (pool["setup"]["backend"], "cause" in pool["verdict"]) == ("process", True)
    assert [env["env_id"] for env in pool["late"]["envs"]] == list(range(6))
    assert pool["so_far"]["envs"][3]["step"]["p50"] > 0.001  # the upper bound of a histogram bucket
    assert all(worker["pid"] for worker in pool["late"]["workers"])
    end(running)


def test_unknown_processes_and_those_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused("expected a running process, got 4194304", "4194304", "--json")  # above every process id
    assert_refused("which has none", str(os.getpid()), "--json")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert_refused("expected a process of this user, got 1, which belongs to user 0", "1", "--json")
