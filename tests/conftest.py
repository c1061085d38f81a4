"""Every test is watched: what hangs is dumped and killed, what leaves something behind fails."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Container, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from programs import children, script  # noqa: F401 - a fixture for all tests
from reaper import watch_over_this_run

from remuda._backends.forkserver import client
from remuda._engine.options import settings as pool_settings

# The same examples in every run, and no limit on speed: on a busy machine drawing them takes long, too.
settings.register_profile(
    "remuda", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("remuda")

# What "auto" finds best depends on the machine and on who else is on it: a test gets it where it asks for it.
pool_settings.DEFAULT_NUM_WORKERS = None


class PreparedForkServer(client.ForkServer):
    """Has imported what tests import: workers that are to find an env by name import the module of its test."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__(environment)
        for module in ("pytest", "hypothesis", "pool_envs"):
            self.preload(module)


client.ForkServer = PreparedForkServer  # type: ignore[misc]

SECONDS = 120  # far more than any test needs on a busy machine
STDERR = pytest.StashKey[int]()
KEPT = {"modules": 0}
REAPER = pytest.StashKey[object]()  # Python warns of a process that nobody holds while it runs


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"watchdog(seconds): how long the test may take, instead of {SECONDS}")
    config.addinivalue_line("markers", "leaves_things: the test is about what is left behind, and looks itself")
    config.addinivalue_line("markers", "cluster: starts a Ray cluster, and is run by itself")
    if sys.platform == "linux" and not Path("/proc/thread-self/children").exists():
        raise pytest.UsageError("expected a kernel with CONFIG_PROC_CHILDREN: else no test sees what it leaves behind")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests send it, to what inherits this too
    config.stash[REAPER] = watch_over_this_run()
    config.stash[STDERR] = os.dup(2)  # while tests run, what is written to descriptor 2 is pytest's to show, or to lose


def pytest_collection_finish() -> None:
    """What the tests have imported stays for good: the collection after each test need not look at it again.

    Small networks are slower with several threads, which wait for each other in loops, and sums come in one order.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    gc.collect()
    keep_imports()


def keep_imports() -> None:
    """Spares what is loaded all collections to come, where that is much more than before: PyTorch costs each 70 ms."""
    if len(sys.modules) > KEPT["modules"] + 50:
        KEPT["modules"] = len(sys.modules)
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was captured may have any character in it, and xdist's workers send their reports as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """Dumps all threads and ends the run: a hung test must not hang whoever waits for it."""
    marker = request.node.get_closest_marker("watchdog")
    seconds = marker.args[0] if marker else SECONDS
    faulthandler.dump_traceback_later(seconds, exit=True, file=request.config.stash[STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def measured_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools have the default that users have."""
    monkeypatch.setattr(pool_settings, "DEFAULT_NUM_WORKERS", "auto")


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, watchdog: None) -> Iterator[None]:  # who looks is watched too
    if sys.platform != "linux" or request.node.get_closest_marker("leaves_things"):
        yield
        return
    before, blocked = descendants(), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    gc.collect()
    assert signal.pthread_sigmask(signal.SIG_SETMASK, blocked) == blocked, "signals were left blocked"
    while (left := _left_since(before)) and all(map(_is_reaped_soon, left)):
        pass
    assert not left, f"processes left behind: {left}"
    assert sys.exc_info()[0] is None, "an exception is handled for good, and keeps its frames"
    assert not arenas(), "an arena is still mapped"
    keep_imports()


def _left_since(before: Container[int]) -> dict[int, str]:
    return {pid: command[-200:] for pid, command in descendants().items() if pid not in before}


def _is_reaped_soon(pid: int) -> bool:
    """A fork server reaps its own, though nobody waits for that."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return state == "Z" and "remuda._backends.forkserver" in Path(f"/proc/{parent}/cmdline").read_text()
    except OSError:
        return True  # it has been


def arenas() -> list[str]:
    """The mappings of pools in this process."""
    maps = Path("/proc/self/maps").read_bytes()  # thousands of lines, beside PyTorch, and looked at after every test
    return [line.decode() for line in maps.splitlines() if b"/memfd:remuda" in line] if b"/memfd:remuda" in maps else []


def descendants() -> dict[int, str]:
    """Our processes below this one, but for those that serve it to its end: pid -> command line."""
    found, todo = dict[int, str](), children()
    while todo:
        pid = todo.pop()
        todo |= children(pid)
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass  # it ended just now
    # The server's own command line is also that of the workers it forked, until they end: they name themselves.
    return {pid: command for pid, command in found.items() if not _is_server(pid, command)}


def _is_server(pid: int, command: str) -> bool:
    if "remuda-watcher" in command:
        return True  # it ends with us; only where we are the first process is it our child
    if "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command:
        return True  # of a peer
    if "remuda._backends.forkserver.server" not in command:
        return False
    try:
        return not Path(f"/proc/{pid}/comm").read_text().startswith(("remuda", "Worker"))
    except OSError:
        return True  # it ended just now
