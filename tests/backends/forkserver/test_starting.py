"""Starts and restarts of workers do not delay other envs, even if a fork server or an interpreter does not respond."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_envs import CountingEnv, Gate, counting
from programs import Script, Watched, end_process, held_by, holdings, kill, stopped

from remuda import FaultPolicy, Pool, StartTimeoutError
from remuda._backends.forkserver import client as forkserver

AT_ONCE = FaultPolicy("restart", backoff=0)


def parent(env: Any) -> int:
    return os.getppid()


def server_of(pool: Pool) -> int:
    server: int = pool.apply(parent)[0]
    return server


# -- a fork server that does not answer ------------------------------------------------------------------


def test_a_stopped_server_misses_the_start_timeout_and_is_replaced() -> None:
    with Pool(counting(1), num_workers=None) as pool:
        server = server_of(pool)
        watched = Watched([server])
        with stopped(server):
            with pytest.raises(StartTimeoutError, match="the process that forks workers did not even start them"):
                Pool(counting(2), start_timeout=0.2, num_workers=None)
            watched.await_end()
        with Pool(counting(2), num_workers=None) as other:
            assert server_of(other) != server
        pool.reset()
        assert pool.step([3]).rewards.tolist() == [3]  # its worker remains alive


@pytest.mark.parametrize(("preload", "server_runs"), [((), False), (("hanging",), False), (("hanging",), True)])
def test_a_start_that_times_out_delays_no_other_pool(
    preload: tuple[str, ...], server_runs: bool, script: Callable[..., Script]
) -> None:
    """The timeout ends before the server has started, or while it imports a module.

    In the first case no server is left. Otherwise it would fork the worker later, and the program might not read its
    answer.
    """
    run = script(f"""
from programs import children
(Path(__file__).parent / "hanging.py").write_text("import threading; threading.Event().wait()")
if {server_runs}:
    Pool(counting(1)).close()
try:
    Pool(counting(1), preload={preload}, start_timeout={0.2 if server_runs else 0.001})
except StartTimeoutError as error:
    commands = [Path(f"/proc/{{pid}}/cmdline").read_text() for pid in children()]
    say(["importing the modules in preload=" in str(error), any("forkserver" in command for command in commands)])
with Pool(counting(1), start_timeout=None) as pool:
    say(pool.reset().obs.shape)
""")
    is_named, server_stays = run.read_line()
    assert is_named
    assert preload or not server_stays
    assert run.read_line() == [1, 4]
    assert run.await_end() == (0, "", "")


def test_a_slow_preload_of_one_pool_does_not_delay_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(tmp_path)
    name = "remuda_test_slow"
    (tmp_path / f"{name}.py").write_text(f"from pool_envs import Gate\n{gate!r}.wait()")
    monkeypatch.syspath_prepend(tmp_path)
    slow: list[Pool] = []
    thread = threading.Thread(target=lambda: slow.append(Pool(counting(1), preload=[name], num_workers=None)))
    thread.start()
    gate.await_arrival()
    with pytest.raises(StartTimeoutError):
        Pool(counting(1), start_timeout=0.2, num_workers=None)  # another pool's preload delays the server
    with Pool(counting(1), num_workers=None) as pool:  # the next pool gets its own server
        assert pool.reset().obs.shape == (1, 4)
    gate.open()
    thread.join()
    assert slow[0].reset().obs.shape == (1, 4)
    slow[0].close()


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_many_restarts_wait_for_a_stopped_server_or_template_and_delay_no_other_env(start_method: Any) -> None:
    many = 19
    with Pool(counting(many), start_method=start_method, faults=AT_ONCE) as pool:
        pool.reset()
        with stopped(server_of(pool)):
            for worker in range(1, many):
                kill(pool, worker)
            assert pool.step([1] * many).truncations.tolist() == [False] + [True] * (many - 1)
            pool.send([2] * many)
            assert pool.recv(timeout=0.05).env_ids.tolist() == [0]
            for action in range(5):
                pool.send([action], env_ids=[0])
                assert pool.recv(min_envs=1).rewards.tolist() == [action]
            assert pool.stats().restarts == many - 1  # all restarts are requested at once
        assert sorted(pool.recv().env_ids) == list(range(1, many))
        assert pool.step(list(range(many))).rewards.tolist() == list(range(many))


def test_a_server_that_does_not_answer_a_restart_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(counting(2), faults=AT_ONCE, start_timeout=None) as pool:
        pool.reset()
        server = server_of(pool)
        watched = Watched([server])
        with stopped(server):
            monkeypatch.setattr(forkserver, "_PATIENCE", 1.0)  # only now, because a busy machine forks slowly
            kill(pool, 1)
            pool.step([1, 1])
            assert pool.step([1, 1]).rewards.tolist() == [1, 0]  # the reset of the restarted env
            watched.await_end()
        assert pool.step([1, 1]).rewards.tolist() == [1, 1]
        assert pool.apply(parent, env_ids=[1]) != [server]


def test_exit_codes_do_not_need_a_stopped_server() -> None:
    pool = Pool(counting(3), faults=AT_ONCE)
    pool.reset()
    with stopped(server_of(pool)):
        for worker, number in ((1, signal.SIGSEGV), (2, signal.SIGKILL)):
            kill(pool, worker, number)
        errors = [info["fault"].error for info in pool.step([1, 1, 1]).infos[1:]]
        assert [error.exitcode for error in errors] == [-signal.SIGSEGV, -signal.SIGKILL]
        pool.close()
        assert pool.workers[0].exitcode == 0
    with Pool(counting(1), num_workers=None) as other:
        assert other.reset().obs.shape == (1, 4)


def test_a_killed_server_has_a_successor_and_holds_no_descriptors_while_its_workers_live() -> None:
    with Pool(counting(2), faults=AT_ONCE) as pool:
        pool.reset()
        before, server = holdings(), server_of(pool)
        end_process(server)
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]  # its workers remain alive
        kill(pool, 1)
        fault = pool.step([0, 0]).infos[1]["fault"]
        assert re.search("its exit code is unknown|killed by SIGKILL", str(fault))  # this process may have received it
        while pool.stats().restarts < 1:
            pool.step([0, 0])
        assert len({server, *pool.apply(parent)}) == 3  # one worker is an orphan, and the other has a new server
        assert holdings() == before
    assert not any(worker.is_alive() for worker in pool.workers)


# -- messages that are not read -------------------------------------------------------------------------


class Heavy:
    """A factory larger than any socket's buffer."""

    def __init__(self, tag: int) -> None:
        self.tag, self.weight = tag, bytes(4_000_000)

    def __call__(self) -> CountingEnv:
        return CountingEnv(self.tag)


def test_an_interpreter_that_does_not_read_its_messages_delays_no_other_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(tmp_path)
    slow = tmp_path / "slow-python"
    slow.write_text(f'#!/bin/sh\n: > "{gate.arrivals}"\ncat "{gate.door}" > /dev/null\nexec "{sys.executable}" "$@"\n')
    slow.chmod(0o755)
    with Pool([Heavy(0), Heavy(1)], start_method="spawn", faults=AT_ONCE) as pool:
        pool.reset()
        monkeypatch.setattr(sys, "executable", str(slow))
        kill(pool, 1)
        pool.step([1, 1])
        gate.await_arrival()
        pool.send([2, 2])
        for action in range(5):
            assert pool.recv(min_envs=1).env_ids.tolist() == [0]
            pool.send([action], env_ids=[0])
        gate.open()
        assert sorted(pool.recv().env_ids) == [0, 1]


def test_objects_that_factories_share_are_stored_once() -> None:
    heavy = Heavy(0)
    with Pool([heavy] * 4, start_method="spawn", num_workers=2, faults=AT_ONCE) as pool:
        pool.reset()
        assert sum(os.stat(path).st_size for path in held_by("self", "remuda-payload")) < 2 * len(heavy.weight)
        kill(pool, 1)
        pool.step([1] * 4)
        assert pool.step([1] * 4).obs[:, 0].tolist() == [0] * 4


# -- the code that workers run --------------------------------------------------------------------------


def test_workers_have_the_options_of_the_interpreter(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
def options(env):
    names = ("optimize", "dev_mode", "utf8_mode", "bytes_warning")
    warnings = [option for option in sys.warnoptions if "ImportWarning" in option or "mine" in option]
    return [getattr(sys.flags, name) for name in names], sys._xoptions.get("mine"), __debug__, warnings

say(options(None))
with Pool(counting(1), start_method="{start_method}") as pool:
    say(pool.apply(options)[0])
""",
        *("-OO", "-X", "dev", "-X", "utf8", "-X", "mine=yes", "-b", "-W", "error::ImportWarning", "-W", "ignore:mine"),
    )
    *own, warnings = run.read_line()
    assert own == [[2, True, 1, 1], "yes", False]
    assert warnings == ["error::ImportWarning", "ignore:mine"]
    *of_worker, warnings = run.read_line()
    assert of_worker == own
    assert start_method == "fork" or warnings == ["default::ImportWarning", "ignore:mine"]  # which end no worker
    assert run.await_end()[0] == 0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Returns a function that writes a module. Each version differs in size and time."""
    monkeypatch.syspath_prepend(tmp_path)
    written: set[str] = set()

    def write(name: str, code: str) -> None:
        path = tmp_path / f"{name}.py"
        path.write_text(code + "\n" * (1 + path.stat().st_size if path.exists() else 1))
        importlib.invalidate_caches()
        written.add(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def value_of(env: Any, name: str) -> Any:
    return importlib.import_module(name).VALUE


def test_later_pools_use_an_edited_module(module: Callable[[str, str], None]) -> None:
    """The edited module is imported by the one that the server preloads."""
    name = "remuda_test_outer"
    module("remuda_test_inner", "VALUE = 1")
    module(name, "from remuda_test_inner import VALUE")
    with Pool(counting(2), preload=[name], faults=AT_ONCE) as before:
        assert before.apply(value_of, name) == [1, 1]
        module("remuda_test_inner", "VALUE = 2")
        with Pool(counting(1), num_workers=None) as pool, Pool(counting(1), preload=[name]) as preloaded:
            assert pool.apply(value_of, name) == preloaded.apply(value_of, name) == [2]
            assert server_of(pool) == server_of(preloaded) != server_of(before)
        kill(before, 1)
        before.reset()
        assert before.apply(value_of, name) == [1, 1]  # all workers of a pool have the same code


def test_later_pools_use_a_reloaded_module(module: Callable[[str, str], None]) -> None:
    """In a notebook, too, the file is the same, but a new execution gives another value."""
    name = "remuda_test_reloaded"
    module(name, "import os\nVALUE = os.environ.get('REMUDA_TEST_VALUE')")
    own = importlib.import_module(name)
    with Pool(counting(1), preload=[name], num_workers=None) as pool:
        assert pool.apply(value_of, name) == [None]
        server = server_of(pool)
    with Pool(counting(1), preload=[name], num_workers=None) as pool:
        assert server_of(pool) == server  # the module was not reloaded
    importlib.reload(own)
    with Pool(counting(1), preload=[name], num_workers=None) as pool:
        assert server_of(pool) != server
