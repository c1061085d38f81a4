"""Watches every test: a test that hangs is dumped and killed, and one that leaves something behind fails."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Container, Generator, Iterator
from pathlib import Path
from typing import Any

import cpu_seconds
import pytest
from hypothesis import HealthCheck, settings
from pool_envs import CountingEnv
from programs import children, collect, script, start_method  # noqa: F401 - fixtures for all tests
from reaper import note_test, start_reaper

from remuda import Pool

# The examples are the same in every run. There is no deadline, because a busy machine draws them slowly.
settings.register_profile(
    "remuda", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("remuda")

# These tests need worker processes.
collect_ignore_glob = [] if sys.platform == "linux" else ["backends/process/*", "backends/forkserver/*", "relay/*"]

SECONDS = 300
STDERR, REAPER = pytest.StashKey[int](), pytest.StashKey[Any]()
FROZEN = {"modules": 0}  # the number of modules that were loaded when the garbage collector last froze their objects


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"watchdog(seconds): how long the test may take, instead of {SECONDS}")
    config.addinivalue_line("markers", "leaves_things: the test is about what is left behind, and looks itself")
    if sys.platform == "linux" and not Path("/proc/thread-self/children").exists():
        raise pytest.UsageError("expected a kernel with CONFIG_PROC_CHILDREN: else no test sees what it leaves behind")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # shells start background commands so
        # tests send SIGINT to this process and to others that inherit its handlers
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(cpu_seconds)
    config.stash[REAPER] = start_reaper()
    config.stash[STDERR] = os.dup(2)  # a copy of stderr; pytest captures descriptor 2 while tests run


def pytest_collection_finish() -> None:
    """Excludes the imported modules from the garbage collections after each test.

    Limits PyTorch to one thread: small networks are slower with several, and one thread gives a fixed order of sums.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.collect()
    keep_imports()


def keep_imports() -> None:
    """Freezes the loaded objects if many modules were imported since. PyTorch makes each collection 70 ms slower."""
    if len(sys.modules) > FROZEN["modules"] + 50:
        FROZEN["modules"] = len(sys.modules)
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes captured output encodable, because xdist's workers send their reports as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    note_test(item.config.stash[REAPER], item.nodeid)
    result = yield
    note_test(item.config.stash[REAPER], "")
    return result


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """Dumps all threads and ends the run if the test takes too long."""
    marker = request.node.get_closest_marker("watchdog")
    seconds = marker.args[0] if marker else SECONDS
    faulthandler.dump_traceback_later(seconds, exit=True, file=request.config.stash[STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session", autouse=True)
def prepared_fork_server() -> None:
    """Lets the fork server import the tests' modules, which workers import to find envs by name."""
    if sys.platform == "linux":
        Pool([CountingEnv], num_workers=1, preload=("pytest", "hypothesis", "pool_envs")).close()


@pytest.fixture(autouse=True)
# the watchdog also covers this fixture
def nothing_left_behind(request: pytest.FixtureRequest, watchdog: None) -> Iterator[None]:
    if sys.platform != "linux" or request.node.get_closest_marker("leaves_things"):
        yield
        return
    before, blocked = descendants(), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    assert signal.pthread_sigmask(signal.SIG_SETMASK, blocked) == blocked, "signals were left blocked"
    for _ in range(10):  # a pool's supervisor may hold it for an instant during a collection
        while (left := _left_since(before)) and all(map(_is_reaped_soon, left)):
            pass
        if not left and not arenas():
            break
        collect()
    assert not left, f"processes left behind: {left}"
    assert sys.exc_info()[0] is None, "an exception is handled for good, and keeps its frames"
    assert not arenas(), "an arena is still mapped"
    keep_imports()


def _left_since(before: Container[int]) -> dict[int, str]:
    return {pid: command[-200:] for pid, command in descendants().items() if pid not in before}


def _is_reaped_soon(pid: int) -> bool:
    """Returns whether a fork server will reap the process soon. Tests do not wait for that."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return state == "Z" and "remuda._backends.forkserver" in Path(f"/proc/{parent}/cmdline").read_text()
    except OSError:
        return True  # it has been reaped


def arenas() -> list[str]:
    """Returns the mappings of pools in this process."""
    maps = Path("/proc/self/maps").read_bytes()  # PyTorch causes thousands of lines
    return [line.decode() for line in maps.splitlines() if b"/memfd:remuda" in line] if b"/memfd:remuda" in maps else []


def descendants() -> dict[int, str]:
    """Returns the command lines of this process's descendants, except those that remain until it ends."""
    found, todo = dict[int, str](), children()
    while todo:
        pid = todo.pop()
        todo |= children(pid)
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass  # the process has just ended
    # A forked worker has the server's command line until it ends, but its own name.
    return {pid: command for pid, command in found.items() if not _is_server(pid, command)}


def _is_server(pid: int, command: str) -> bool:
    if "remuda-watcher" in command:
        return True  # it ends with this process, and is its child only if this is process 1
    if "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command:
        return True  # started by another library
    if "remuda._backends.forkserver.server" not in command:
        return False
    try:
        return not Path(f"/proc/{pid}/comm").read_text().startswith(("remuda", "Worker"))
    except OSError:
        return True  # the process has just ended
