"""The owner reaps its descendants' orphans, for example as the first process of a container, where no other process
would.
"""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pool_envs import counting
from programs import Script, holdings, kill

from remuda import Pool
from remuda._backends.process import os_process as launch
from remuda._backends.process import start_methods as starting
from remuda._engine.pool import pool
from remuda._engine.startup import start

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]

START_METHODS = ("forkserver", "fork")  # `test_start_methods.py` has all

# By this setting a process adopts its descendants' orphans without being process 1.
TAKES_IN_ORPHANS = """
import select, simulators
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0

def children():
    return sum((path.read_text().split() for path in Path("/proc/self/task").glob("*/children")), [])

def zombies():
    stats = [(Path("/proc") / pid / "stat").read_text() for pid in children()]
    return [stat for stat in stats if stat.rpartition(")")[2].split()[0] == "Z"]

"""

RESTARTS = """
fns = [lambda: HookedEnv(step=lambda env, action: kill_myself() if action else CountingEnv.step(env, action))] * 2
with Pool(fns, start_method=METHOD, faults="restart") as pool:
    pool.reset()
    for _ in range(2):
        pool.apply(lambda env: simulators.start_all())
        pool.step([1, 0])
        pool.step([0, 0])
    say(zombies())
say(zombies())
pool = Pool(counting(2), start_method=METHOD)
pool.apply(lambda env: simulators.start_all())
pool.close(terminate=True)
say(zombies())
"""


@pytest.mark.parametrize("start_method", START_METHODS)
def test_orphans_are_reaped(start_method: str, script: Callable[..., Script]) -> None:
    run = script(f"from accidents import kill_myself\nMETHOD = {start_method!r}" + TAKES_IN_ORPHANS + RESTARTS)
    for _ in range(3):
        assert run.read_line() == []
    assert run.await_end()[:2] == (0, "")


def test_orphans_of_process_1_are_reaped(script: Callable[..., Script], tmp_path: Path) -> None:
    unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
    if subprocess.run([*unshare, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no process can be the first one here")
    (tmp_path / "first.py").write_text(
        "from script_head import *\nfrom accidents import kill_myself\nassert os.getpid() == 1\nMETHOD = 'forkserver'"
        + TAKES_IN_ORPHANS
        + RESTARTS
    )
    run = script(f"os.execvp('unshare', {[*unshare, sys.executable, str(tmp_path / 'first.py')]!r})")
    for _ in range(3):
        assert run.read_line() == []
    run.await_end()


def test_orphans_that_ended_by_themselves_are_reaped(script: Callable[..., Script]) -> None:
    """One group ends before the worker, when the orphans no longer show its key. One orphan ends long after it."""
    run = script(
        TAKES_IN_ORPHANS
        + """
def end(pid):
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([pidfd], [], [])
    os.close(pidfd)

with Pool(counting(1)) as pool:
    pool.reset()
    for pid in pool.apply(lambda env: [simulators.in_a_session(), simulators.as_a_daemon()])[0]:
        end(pid)
    (late,) = pool.apply(lambda env: simulators.without_the_key())
say(zombies())
end(late)
while Path(f"/proc/{late}").exists():
    assert str(late) not in children()
say("reaped")
"""
    )
    assert run.read_line() == []
    assert run.read_line() == "reaped"
    assert run.await_end() == (0, "", "")


@pytest.mark.parametrize("end", ["os.kill(server, signal.SIGKILL)", "pool.close(); del pool; gc.collect()"])
def test_workers_that_a_fork_server_did_not_reap_are_reaped(end: str, script: Callable[..., Script]) -> None:
    """The server was stopped when they died, and then ended."""
    run = script(
        TAKES_IN_ORPHANS
        + f"""
import gc
pool = Pool(counting(3), faults=FaultPolicy("restart", backoff=0))
(server, *_), workers = pool.apply(lambda env: os.getppid()), pids(pool)
pool.reset()
os.kill(server, signal.SIGSTOP)
for pid in workers[1:]:
    os.kill(pid, signal.SIGKILL)
say(pool.step([0, 0, 0]).truncations.tolist())
{end}
if "pool" in globals():
    say(pool.step([0, 0, 0]).obs.shape)
    while any(Path(f"/proc/{{pid}}").exists() for pid in workers[1:]):
        pass
say(zombies())
"""
    )
    assert run.read_line() == [False, True, True]
    if end.startswith("os.kill"):
        assert run.read_line() == [3, 4]
    assert run.read_line() == []
    assert run.await_end()[:2] == (0, "")


@pytest.mark.parametrize("start_method", START_METHODS)
def test_an_interrupt_while_envs_are_built_leaves_no_zombie(start_method: str, script: Callable[..., Script]) -> None:
    run = script(
        TAKES_IN_ORPHANS
        + f"""
def build(env):
    simulators.start_all()
    os.kill(os.getppid() if "{start_method}" != "forkserver" else OWNER, signal.SIGINT)
    wait_for_ever()

OWNER = os.getpid()
fns = [CountingEnv, lambda: HookedEnv(build=build)]
try:
    Pool(fns, start_method="{start_method}")
except KeyboardInterrupt:
    say(zombies())
"""
    )
    assert run.read_line() == []
    assert run.await_end()[:2] == (0, "")


KILLS_AND_WAITS = """
def send_and_wait(pidfd, number):
    send(pidfd, number)
    select.select([pidfd], [], [])

send, signal.pidfd_send_signal = signal.pidfd_send_signal, send_and_wait
"""


@pytest.mark.parametrize("kills", ["", KILLS_AND_WAITS], ids=["dying", "dead"])
def test_an_interrupt_during_a_request_to_the_fork_server_leaves_no_zombie(
    kills: str, script: Callable[..., Script]
) -> None:
    """The server is ended, because the next request would receive its answer. Its workers become children of this
    process.

    An unused worker is killed. It is reaped even if it is dead before the pool searches for it by its key.
    """
    run = script(
        TAKES_IN_ORPHANS
        + kills
        + """
from remuda._backends.forkserver import client as forkserver
with Pool(counting(2)) as pool:
    send_pickled, requests = forkserver.send_pickled, []
    receive, answers = forkserver.receive, []

    def sent(*arguments):
        send_pickled(*arguments)
        requests.append(arguments)

    def interrupted(*arguments):
        if len(requests) < 2:
            raise BlockingIOError  # so that both answers come at once, and nobody has made use of the first
        select.select([arguments[0]], [], [])
        answers.append(receive(*arguments))
        if len(answers) == 2:
            raise KeyboardInterrupt
        return answers[-1]

    forkserver.send_pickled = sent
    forkserver.receive = interrupted
    try:
        Pool(counting(2))
    except KeyboardInterrupt:
        say(zombies())
    forkserver.send_pickled, forkserver.receive = send_pickled, receive
    say(pool.reset().obs[:, 0].tolist())
say(zombies())
"""
    )
    assert run.read_line() == []
    assert run.read_line() == [0, 1]
    assert run.read_line() == []
    assert run.await_end()[:2] == (0, "")


_STEPS = [
    (launch.__file__, "__init__"),
    *((start.__file__, name) for name in ("start", "lay_out")),
    (pool.__file__, "_take_over"),
]
"""The functions of a start outside of `start_methods` in which `InterruptAt` counts lines."""


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th line of the start of a process, in this process."""

    def __init__(self, n: int) -> None:
        self._left, self._owner = n, os.getpid()

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        place = frame.f_code.co_filename, frame.f_code.co_name
        if place[0] != starting.__file__ and place not in _STEPS:
            return None
        if event == "line" and os.getpid() == self._owner:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self

    @property
    def was_due(self) -> bool:
        return self._left <= 0


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # garbage collection closes them
def test_an_interrupt_at_any_line_of_a_start_leaves_no_process() -> None:
    """No interrupt leaves a process or a descriptor."""
    Pool(counting(1), start_method="fork").close()
    gc.collect()
    before = holdings()
    for line in itertools.count(1):
        interrupt = InterruptAt(line)
        sys.settrace(interrupt)
        try:
            Pool(counting(1), start_method="fork").close()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        if not interrupt.was_due:
            break
        gc.collect()
        assert holdings() == before, f"after line {line} of the start"
    assert line > 20


def test_a_killed_worker_is_reaped() -> None:
    with Pool(counting(2), faults="restart") as pool:
        pool.reset()
        pid = kill(pool, 0)
        pool.step([0, 0])
        while Path(f"/proc/{pid}").exists():  # the pool does not wait for the fork server to reap it
            pass


def test_a_worker_is_found_before_it_runs_after_an_interrupted_start(
    script: Callable[..., Script], tmp_path: Path
) -> None:
    """The worker has not yet run a line of its own code."""
    fifo = tmp_path / "fifo"
    (tmp_path / "pausing.py").write_text(
        f"""
import os

def pause():
    if os.path.exists({str(fifo)!r}):
        open({str(fifo)!r}).read()  # until somebody writes to it: for ever

os.register_at_fork(after_in_child=pause)
"""
    )
    run = script(
        TAKES_IN_ORPHANS
        + f"""
sys.path.insert(0, {str(tmp_path)!r})
from remuda._backends.forkserver import client as forkserver
with Pool(counting(2), preload=("pausing",)) as pool:
    before = {{*children(), *(str(worker.pid) for worker in pool.workers)}}
    os.mkfifo({str(fifo)!r})
    receive = forkserver.receive

    def interrupted(*arguments):
        answer, fds = receive(*arguments)
        if isinstance(answer.value, int):
            raise KeyboardInterrupt
        return answer, fds

    forkserver.receive = interrupted
    try:
        Pool(counting(2), preload=("pausing",))
    except KeyboardInterrupt:
        say(sorted({{*children()}} - before))
"""
    )
    assert run.read_line() == []
    assert run.await_end()[:2] == (0, "")
