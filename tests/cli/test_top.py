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


def start(script: Start, options: str = "{}") -> tuple[Script, int]:
    """Starts the program. Returns it and its process id when its pool is open."""
    running = script(program(options=options))
    running.read_line()
    return running, running.process.pid


def end(running: Script) -> None:
    running.write_line()
    assert running.read_line() == "closed"
    running.write_line()
    code, _, err = running.await_end()
    assert code == 0, err


def test_top_shows_the_slow_env_first_and_fits_into_80_columns(script: Start, tmp_path: Path) -> None:
    running, pid = start(script)
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        first_row = re.compile(r"p99v.*\n +3 +1 ")
        text = top.await_text(first_row.search)
        assert f"remuda top  herd, process {pid}: 6 envs in 3 process workers" in text
        assert re.search(r"[\d,]+ steps/s, [\d,]+ batches/s; \d/3 at work; waits \d+%", text)
        assert all(heading in text for heading in ("state", "step ", "reset", "episodes", "return", "faults"))
        assert "q quit" in text
        top.await_text(re.compile(r"env 3|workers|waits").search)  # the verdict
        top.press("q")
        assert top.await_end()[0] == 0
    end(running)


def test_keys_sort_change_the_page_and_show_one_env(script: Start, tmp_path: Path) -> None:
    running, pid = start(script)
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        top.await_text(re.compile(r"p99v.*\n +3 ").search)
        top.press("\r")  # the page of the first row
        text = top.await_text(lambda text: "the end of its worker's output" in text)
        assert "env 3" in text and re.search(r"a step +mean [\d.]+ ms", text) and "last returns" in text
        top.press("\x1b")
        top.await_text(lambda text: "p99v" in text)
        top.press("\x1b[B\x1b[B\r")
        top.await_text(lambda text: "a step " in text and "env 3\n" not in text)
        top.press("e")
        top.press("s")
        top.await_text(lambda text: "resetv" in text)
        top.press("Sr")
        top.await_text(lambda text: "p99^" in text)
        top.press("w")
        text = top.await_text(lambda text: "busyv" in text)
        assert all(heading in text for heading in ("pid", "CPU", "queued", "memory", "restarts"))
        assert re.search(r"^ +1 +\d+ +2-3 ", text, re.MULTILINE)
        top.press("j")
        text = top.await_text(lambda text: "written: " in text)
        top.press("q")
        assert top.await_end()[0] == 0
    (path,) = tmp_path.glob("remuda-top-*.json")
    assert json.loads(path.read_text())["pid"] == pid and path.name in text
    end(running)


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_top_ends_with_a_sentence_if_the_pool_ends(how: str, script: Start, tmp_path: Path) -> None:
    running, pid = start(script)
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        top.await_text(lambda text: "p99v" in text)
        if how == "closed":
            running.write_line()
            assert running.read_line() == "closed"
        else:
            os.kill(pid, signal.SIGKILL)
            running.process.wait()
        code, text = top.await_end()
    sentence = "was closed" if how == "closed" else "is gone: the process has ended"
    assert code == 0 and f"the pool herd of process {pid} {sentence}" in text
    if how == "closed":
        running.write_line()
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


def test_tab_switches_between_pools_and_the_end_of_one_is_reported(script: Start, tmp_path: Path) -> None:
    running = script(TWO)
    running.read_line()
    pid = running.process.pid
    names = (f"herd, process {pid} (", f"other, process {pid} (")
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        text = top.await_text(lambda text: any(name in text for name in names))
        shown, following = names if names[0] in text else names[::-1]
        assert re.search(r"\([12] of 2\): [23] envs in 1", text)
        top.press("\t")
        top.await_text(lambda text: following in text)
        top.press("\tw")
        top.await_text(lambda text: shown in text and "busyv" in text)
        running.write_line()
        assert running.read_line() == "closed"
        text = top.await_text(lambda text: f"the pool herd of process {pid} was closed" in text)
        assert f"remuda top  other, process {pid}: 3 envs in 1 process workers" in text
        running.write_line()
        assert running.read_line() == "over"
        code, text = top.await_end()
    assert code == 0 and f"the pool other of process {pid} was closed" in text
    running.write_line()
    running.await_end()


def test_a_stopped_program_is_reported(script: Start, tmp_path: Path) -> None:
    running, pid = start(script)
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        top.await_text(lambda text: "own code" in text)
        os.kill(pid, signal.SIGSTOP)
        text = top.await_text(lambda text: f"kill -CONT {pid} lets it go on" in text and "own code" not in text)
        assert "the program is stopped: by SIGSTOP" in text
        (pool,) = json.loads(command("top", str(pid), "--json", "--interval", "0.05").stdout)
        assert pool["is_stopped"]
        os.kill(pid, signal.SIGCONT)
        top.await_text(lambda text: "own code" in text)
        top.press("q")
        assert top.await_end()[0] == 0
    end(running)


def test_a_terminal_that_cannot_be_drawn_on_is_refused(script: Start, tmp_path: Path) -> None:
    running, pid = start(script)
    with terminal("top", str(pid), cwd=tmp_path, TERM="dumb") as top:
        code, text = top.await_end()
    assert code == 2 and "got TERM=dumb" in text and "--json" in text
    end(running)


def test_json_needs_no_terminal(script: Start) -> None:
    running, pid = start(script)
    run = command("top", str(pid), "--json", "--interval", "0.1")
    (pool,) = json.loads(run.stdout)
    assert (run.exit_code, pool["name"], pool["setup"]["envs_of_worker"]) == (0, "herd", [2, 2, 2])
    assert [env["env_id"] for env in pool["late"]["envs"]] == list(range(6))
    assert pool["so_far"]["envs"][3]["step"]["p50"] > 0.001  # the upper bound of a histogram bucket
    assert "cause" in pool["verdict"]
    refused = command("top", str(pid))
    assert refused.exit_code == 2 and "expected a terminal to draw on" in refused.stderr
    end(running)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_pools_without_processes_are_shown(backend: str, script: Start) -> None:
    code = program(options=f"dict(backend={backend!r})").replace('worker_output="capture", ', "")
    running = script(code.replace("num_workers=3", "num_workers=1") if backend == "serial" else code)
    running.read_line()
    (pool,) = json.loads(command("top", str(running.process.pid), "--json", "--interval", "0.1").stdout)
    assert pool["setup"]["backend"] == backend and {worker["pid"] for worker in pool["late"]["workers"]} == {None}
    end(running)


def test_unknown_processes_and_those_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = command("top", "4194304")  # a number above every process id
    assert missing.exit_code == 2 and "expected a running process, got 4194304" in missing.stderr
    mine = command("top", str(os.getpid()), "--json")
    assert mine.exit_code == 2 and "which has none" in mine.stderr
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    foreign = command("top", "1", "--json")
    assert (
        foreign.exit_code == 2 and "expected a process of this user, got 1, which belongs to user 0" in foreign.stderr
    )
