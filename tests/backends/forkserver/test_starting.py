"""Starts and restarts of workers do not delay other envs, even if a fork server or an interpreter does not respond."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pool_envs import CountingEnv, Gate, counting
from programs import Script, Watched, await_sleep, holdings, kill, pids_of

from remuda import FaultPolicy, Pool, StartTimeoutError
from remuda._backends.forkserver import client as forkserver
from remuda._backends.process import start_methods
from remuda._backends.process.os_process import WorkerProcess

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

AT_ONCE = FaultPolicy("restart", backoff=0)


def parent(env: Any) -> int:
    return os.getppid()


def server_of(pool: Pool) -> int:
    server: int = pool.apply(parent)[0]
    return server


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        pass
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was replaced
            os.kill(pid, signal.SIGCONT)


# -- a fork server that does not answer ------------------------------------------------------------------


def test_a_stopped_server_misses_the_start_timeout_and_is_replaced() -> None:
    with Pool(counting(1)) as pool:
        server = server_of(pool)
        watched = Watched([server])
        with stopped(server):
            with pytest.raises(StartTimeoutError, match="the fork server did not even start them"):
                Pool(counting(2), start_timeout=0.2)
            watched.await_end()
        with Pool(counting(2)) as other:
            assert server_of(other) != server
        pool.reset()
        assert pool.step([3]).rewards.tolist() == [3]  # its worker remains alive


def test_a_preload_that_hangs_misses_the_start_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "remuda_test_hanging.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StartTimeoutError, match="importing the modules in preload="):
        Pool(counting(2), preload=["remuda_test_hanging"], start_timeout=0.2)
    with Pool(counting(1)) as pool:
        assert pool.reset().obs.shape == (1, 4)


def test_a_preload_that_hangs_after_the_timeout_does_not_delay_other_pools(script: Callable[..., Script]) -> None:
    """The start timeout ends before the server can begin the import."""
    run = script("""
module = Path(__file__).parent / "remuda_test_hanging.py"
module.write_text("import threading; threading.Event().wait()")
try:
    Pool(counting(1), preload=["remuda_test_hanging"], start_timeout=0.001)
except StartTimeoutError:
    with Pool(counting(1), start_timeout=None) as pool:
        say(pool.reset().obs.shape)
""")
    assert run.read_line() == [1, 4]
    assert run.await_end() == (0, "", "")


def test_a_start_that_times_out_before_its_server_has_started_leaves_no_server(script: Callable[..., Script]) -> None:
    """Otherwise the server would fork the worker later, and the program might not read the server's answer."""
    run = script("""
from programs import children
try:
    Pool(counting(1), start_timeout=0.001)
except StartTimeoutError:
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children()]
    say([command for command in commands if "forkserver" in command])
with Pool(counting(1)) as pool:
    say(pool.reset().obs.shape)
""")
    assert run.read_line() == []
    assert run.read_line() == [1, 4]
    assert run.await_end() == (0, "", "")


def test_a_slow_preload_of_one_pool_does_not_delay_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(tmp_path)
    name = "remuda_test_slow"
    (tmp_path / f"{name}.py").write_text(f"from pool_envs import Gate\n{gate!r}.wait()")
    monkeypatch.syspath_prepend(tmp_path)
    slow: list[Pool] = []
    thread = threading.Thread(target=lambda: slow.append(Pool(counting(1), preload=[name])))
    thread.start()
    gate.await_arrival()
    with pytest.raises(StartTimeoutError):
        Pool(counting(1), start_timeout=0.2)  # another pool's preload delays the server
    with Pool(counting(1)) as pool:  # the next pool gets its own server
        assert pool.reset().obs.shape == (1, 4)
    gate.open()
    thread.join()
    assert slow[0].reset().obs.shape == (1, 4)
    slow[0].close()


def test_restarts_by_a_stopped_server_do_not_delay_other_envs() -> None:
    with Pool(counting(4), faults=AT_ONCE) as pool:
        pool.reset()
        with stopped(server_of(pool)):
            for worker in (1, 2, 3):
                kill(pool, worker)
            assert pool.step([1, 1, 1, 1]).truncations.tolist() == [False, True, True, True]
            pool.send([2, 2, 2, 2])
            assert pool.recv(timeout=0.05).env_ids.tolist() == [0]
            for action in range(5):
                pool.send([action], env_ids=[0])
                assert pool.recv(min_envs=1).rewards.tolist() == [action]
            assert pool.stats().restarts == 3  # all three restarts are requested at once
        assert sorted(pool.recv().env_ids) == [1, 2, 3]
        assert pool.step([1, 2, 3, 4]).rewards.tolist() == [1, 2, 3, 4]


def test_a_server_that_does_not_answer_a_restart_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkserver, "_PATIENCE", 0.1)
    with Pool(counting(2), faults=AT_ONCE, start_timeout=None) as pool:
        pool.reset()
        server = server_of(pool)
        watched = Watched([server])
        with stopped(server):
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
    with Pool(counting(1)) as other:
        assert other.reset().obs.shape == (1, 4)


def test_more_restarts_than_the_server_forks_at_once() -> None:
    many = 2 * forkserver._IN_FLIGHT + 3
    with Pool(counting(many), faults=AT_ONCE) as pool:
        pool.reset()
        for pid in pids_of(pool):
            os.kill(pid, signal.SIGKILL)
        while pool.stats().restarts < many:
            pool.step([1] * many)
        pool.reset()
        assert pool.step(list(range(many))).rewards.tolist() == list(range(many))


def test_an_interrupted_start_leaves_no_process(script: Callable[..., Script]) -> None:
    run = script(
        """
from remuda._backends.forkserver import client
client._PATIENCE = 1e6  # until we know that it waits

class Telling(CountingEnv):
    def __reduce__(self):
        say("starting")
        return CountingEnv, ()

with Pool(counting(1)) as first:
    (server,) = first.apply(lambda env: os.getppid())
    os.kill(server, signal.SIGSTOP)
    try:
        Pool([*counting(19), lambda env=Telling(): env])
    except KeyboardInterrupt:
        say("interrupted")
    with Pool(counting(2)) as pool:
        say(pool.reset().obs.shape)
"""
    )
    assert run.read_line() == "starting"
    await_sleep(run.process.pid)  # the program waits for the server
    os.kill(run.process.pid, signal.SIGINT)
    assert run.read_line() == "interrupted"
    assert run.read_line() == [2, 4]
    assert run.await_end()[0] == 0


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # garbage collection closes it
@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_processes_of_an_interrupted_start_are_searched_once(
    start_method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(start_methods, "kill_process_trees", lambda sought, _: keys.extend(sought))
    monkeypatch.setattr(start_methods, "WorkerProcess", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Pool(counting(1), start_method=start_method)
    assert len(keys) == 1


def sizes(of: str) -> list[int]:
    """Returns the sizes of the memory files with this name that this process holds."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor that lists the directory
            if of in os.readlink(path):
                found.append(path.stat().st_size)
    return found


def test_a_dead_server_holds_no_descriptors_while_its_workers_live() -> None:
    with Pool(counting(2), faults=AT_ONCE) as pool:
        pool.reset()
        before, server = holdings(), server_of(pool)
        watched = Watched([server])
        os.kill(server, signal.SIGKILL)
        watched.await_end()
        kill(pool, 1)
        while pool.stats().restarts < 1:
            pool.step([0, 0])
        assert len({server, *pool.apply(parent)}) == 3  # one worker is an orphan, and the other has a new server
        assert holdings() == before


def test_an_interrupt_while_a_successor_takes_over_leaks_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(process: WorkerProcess) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Pool(counting(2), faults=AT_ONCE) as pool:
        pool.reset()
        before = holdings()
        kill(pool, 1)
        monkeypatch.setattr(WorkerProcess, "release", interrupt)
        with pytest.raises(KeyboardInterrupt):
            while True:
                pool.step([0, 0])
        pool.discard()
        pool.reset()
        pool.step([0, 0])
        assert holdings() == before


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
        (size,) = sizes("parcel of remuda")
        assert size < 2 * len(heavy.weight)
        kill(pool, 1)
        pool.step([1] * 4)
        assert pool.step([1] * 4).obs[:, 0].tolist() == [0] * 4


# -- the code that workers run --------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_workers_have_the_options_of_the_interpreter(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
def options(env):
    names = ("optimize", "dev_mode", "utf8_mode", "bytes_warning")
    return [getattr(sys.flags, name) for name in names], sys._xoptions.get("mine"), __debug__

say(options(None))
with Pool(counting(1), start_method="{start_method}") as pool:
    say(pool.apply(options)[0])
""",
        *("-OO", "-X", "dev", "-X", "utf8", "-X", "mine=yes", "-b"),
    )
    own = run.read_line()
    assert own == [[2, True, 1, 1], "yes", False]
    assert run.read_line() == own
    assert run.await_end()[0] == 0


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_warning_filters_of_the_caller_do_not_end_workers(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(
        f"""
import warnings
warnings.resetwarnings()
with Pool(counting(1), start_method="{start_method}") as pool:
    say(pool.apply(lambda env: sys.warnoptions)[0])
""",
        *("-W", "error::ImportWarning", "-W", "ignore:mine"),
    )
    assert run.read_line() == ["default::ImportWarning", "ignore:mine"]
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
    name = "remuda_test_edited"
    module(name, "VALUE = 1")
    with Pool(counting(2), preload=[name], faults=AT_ONCE) as before:
        assert before.apply(value_of, name) == [1, 1]
        module(name, "VALUE = 2")
        with Pool(counting(1)) as pool, Pool(counting(1), preload=[name]) as preloaded:
            assert pool.apply(value_of, name) == preloaded.apply(value_of, name) == [2]
            assert server_of(pool) == server_of(preloaded) != server_of(before)
        kill(before, 1)
        before.reset()
        assert before.apply(value_of, name) == [1, 1]  # all workers of a pool have the same code


def test_later_pools_use_an_edited_import_of_a_preloaded_module(module: Callable[[str, str], None]) -> None:
    module("remuda_test_inner", "VALUE = 1")
    module("remuda_test_outer", "from remuda_test_inner import VALUE")
    Pool(counting(1), preload=["remuda_test_outer"]).close()
    module("remuda_test_inner", "VALUE = 2")
    with Pool(counting(1), preload=["remuda_test_outer"]) as pool:
        assert pool.apply(value_of, "remuda_test_outer") == [2]


def test_later_pools_use_a_reloaded_module(module: Callable[[str, str], None]) -> None:
    """In a notebook, too, the file is the same, but a new execution gives another value."""
    name = "remuda_test_reloaded"
    module(name, "import os\nVALUE = os.environ.get('REMUDA_TEST_VALUE')")
    own = importlib.import_module(name)
    with Pool(counting(1), preload=[name]) as pool:
        assert pool.apply(value_of, name) == [None]
        server = server_of(pool)
    with Pool(counting(1), preload=[name]) as pool:
        assert server_of(pool) == server  # the module was not reloaded
    importlib.reload(own)
    with Pool(counting(1), preload=[name]) as pool:
        assert server_of(pool) != server


# -- what forked workers inherit -------------------------------------------------------------------------


def links(pid: int | str, of: str) -> set[str]:
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # the descriptor that lists the directory
            found.add(os.readlink(path))
    return {link for link in found if of in link}


def test_a_forked_worker_holds_no_descriptors_of_other_workers_and_pools() -> None:
    with (
        Pool(counting(2), faults="restart") as of_server,
        Pool(counting(2), start_method="fork", faults=AT_ONCE) as one,
        Pool(counting(3), start_method="fork", faults=AT_ONCE, worker_output="capture") as other,
    ):
        for pool in (of_server, one, other):
            pool.reset()
        kill(other, 2)  # its successor starts when all pools have an arena
        other.reset()
        own_sockets = links("self", "socket:")
        # All workers share one socket, through which they send their logs.
        assert len({link for pid in pids_of(other) for link in links(pid, "socket:") & own_sockets}) == 1
        for pid in pids_of(other):
            assert not links(pid, "parcel of remuda")
            assert not links(pid, "memfd:remuda ")
            assert links(pid, "memfd:remuda-output")
