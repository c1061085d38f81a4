"""``remuda top`` and ``remuda stacks`` while a pool is building its envs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import command
from pool_envs import Gate, make_gates
from programs import Script

if sys.platform != "linux":
    pytest.skip("it reads /proc", allow_module_level=True)

from watched import starting_program, terminal

from remuda._watch import stacks

Start = Callable[..., Script]


@pytest.fixture(params=["forkserver", "fork"])
def program_and_gate(request: pytest.FixtureRequest, script: Start, tmp_path: Path) -> tuple[Script, Gate]:
    """Starts a program in which env 1 waits in its factory. The other envs are built."""
    (gate,) = make_gates(tmp_path, 1)
    running = script(starting_program([None, gate, None, None], f"dict(start_method={request.param!r})"))
    gate.await_arrival()
    while [env["is_built"] for env in starting(running)["starting"]].count(True) < 3:
        pass
    return running, gate


def starting(running: Script) -> Any:
    (pool,) = json.loads(command("top", str(running.process.pid), "--json", "--interval", "0.05").stdout)
    return pool


def end(running: Script, gate: Gate | None = None) -> None:
    """Ends the program. If `gate` is given, it first lets the waiting factory pass."""
    if gate is not None:
        gate.open()
    running.write_line()
    assert running.await_end()[0] == 0


def test_stacks_show_the_factory(program_and_gate: tuple[Script, Gate]) -> None:
    running, gate = program_and_gate
    run = command("stacks", str(running.process.pid), "--python")
    assert run.exit_code == 0, run.output
    heading, first, second = run.stdout.split("\n\n")
    assert heading == f"pool herd of process {running.process.pid}: 4 envs in 2 process workers, being started"
    assert re.match(r"worker 0 \(pid \d+\): builds env 1 for [\d.]+ ", first)
    frames = [line.split(" in ")[-1] for line in first.splitlines()[1:]]
    assert frames[:4] == ["_meet", "wait", "wait_for_simulator", "build"]
    assert re.fullmatch(r"worker 1 \(pid \d+\): has built its envs\n", second)
    end(running, gate)


def test_py_spy_shows_the_factory(program_and_gate: tuple[Script, Gate]) -> None:
    assert stacks.py_spy() is not None  # tests/requirements.txt names it
    text = command("stacks", str(program_and_gate[0].process.pid)).stdout
    assert f"the program (pid {program_and_gate[0].process.pid})" in text
    assert "wait_for_simulator" in text[text.index("worker 0") :]
    end(*program_and_gate)


def test_top_shows_the_env_being_built_and_later_the_pool(
    program_and_gate: tuple[Script, Gate], tmp_path: Path
) -> None:
    running, gate = program_and_gate
    pid = running.process.pid
    with terminal("top", str(pid), "--interval", "0.2", cwd=tmp_path) as top:
        text = top.await_text(lambda text: "has been in its factory for" in text)
        assert re.search(rf"^herd +{pid} +4 +2 *$", text, re.MULTILINE)
        words = " ".join(text.split())
        assert "3 of 4 envs are built, 1 are being built, for " in words
        assert "env 1 has been in its factory for " in words and f"remuda stacks {pid}" in words
        gate.open()
        top.await_text(re.compile(rf"^herd +{pid} +4 +2 +0 ", re.MULTILINE).search)  # of the pool
        top.process.send_signal(signal.SIGINT)
        assert top.await_end()[0] == 0
    end(running)


def test_top_ends_with_a_program_that_dies_while_starting(
    program_and_gate: tuple[Script, Gate], tmp_path: Path
) -> None:
    running, _ = program_and_gate
    with terminal("top", str(running.process.pid), "--interval", "0.2", cwd=tmp_path) as top:
        top.await_text(lambda text: "envs are built" in text)
        running.process.kill()
        running.process.wait()
        assert top.await_end()[0] == 0
    running.await_end()


def test_json_lists_built_and_unbuilt_envs(program_and_gate: tuple[Script, Gate]) -> None:
    pool = starting(program_and_gate[0])
    assert (pool["name"], pool["pid"]) == ("herd", program_and_gate[0].process.pid)
    first, *others = pool["starting"]  # the env that is being built comes first
    assert (first["env_id"], first["worker"], first["is_built"]) == (1, 0, False) and first["seconds"] > 0
    assert {(env["env_id"], env["worker"], env["is_built"]) for env in others} == {
        (0, 0, True),
        (2, 1, True),
        (3, 1, True),
    }
    end(*program_and_gate)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_pools_without_processes_are_shown_while_starting(backend: str, script: Start, tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    code = starting_program([None, gate, None, None], f"dict(backend={backend!r})")
    running = script(code.replace(", num_workers=2", ", num_workers=1"))
    gate.await_arrival()
    built = [env for env in starting(running)["starting"] if env["is_built"]]
    assert [env["env_id"] for env in built] == [0]
    text = command("stacks", str(running.process.pid), "--python").stdout
    assert "worker 0: builds env 1 for " in text and "see the program's threads" in text
    end(running, gate)
