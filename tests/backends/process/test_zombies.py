"""The owner reaps its descendants' orphans, for example as the first process of a container, where no other process
would.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import Script

START_METHODS = ("forkserver", "fork")  # `test_start_methods.py` has all

# By this setting a process adopts its descendants' orphans without being process 1.
TAKES_IN_ORPHANS = """
import simulators
from programs import collect, end_process, kill, step_until_restarted
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0

def children():
    return sum((path.read_text().split() for path in Path("/proc/self/task").glob("*/children")), [])

def zombies():
    stats = [(Path("/proc") / pid / "stat").read_text() for pid in children()]
    return [stat for stat in stats if stat.rpartition(")")[2].split()[0] == "Z"]

"""

RESTARTS = """
with Pool(counting(2), start_method=METHOD, faults="restart") as pool:
    pool.reset()
    for _ in range(2):
        pool.apply(lambda env: simulators.start_all())
        step_until_restarted(pool, 0, kill(pool, 0))
    say(zombies())
say(zombies())
pool = Pool(counting(2), start_method=METHOD)
pool.apply(lambda env: simulators.start_all())
pool.close(terminate=True)
say(zombies())

def interrupted(env):
    simulators.start_all()
    os.kill(OWNER, signal.SIGINT)
    wait_for_ever()

OWNER = os.getpid()
try:
    Pool(hooked(2, build=interrupted), start_method=METHOD)
except KeyboardInterrupt:
    say(zombies())
"""


@pytest.mark.parametrize(("start_method", "is_first"), [("forkserver", False), ("forkserver", True), ("fork", False)])
def test_orphans_are_reaped(start_method: str, is_first: bool, script: Callable[..., Script], tmp_path: Path) -> None:
    """The owner adopts orphans by a setting, or is the first process."""
    program = f"assert {is_first} == (os.getpid() == 1)\nMETHOD = {start_method!r}\n{TAKES_IN_ORPHANS}{RESTARTS}"
    if is_first:
        unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
        if subprocess.run([*unshare, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            pytest.skip("no process can be the first one here")
        (tmp_path / "first.py").write_text(f"from script_head import *\n{program}")
        program = f"os.execvp('unshare', {[*unshare, sys.executable, str(tmp_path / 'first.py')]!r})"
    run = script(program)
    for _ in range(4):
        assert run.read_line() == []
    code, out, _ = run.await_end()
    assert is_first or (code, out) == (0, "")


def test_orphans_that_ended_by_themselves_are_reaped(script: Callable[..., Script]) -> None:
    """One group ends before the worker, when the orphans no longer show its key. One orphan ends long after it."""
    run = script(
        TAKES_IN_ORPHANS
        + """

with Pool(counting(1)) as pool:
    pool.reset()
    for pid in pool.apply(lambda env: [simulators.in_a_session(), simulators.as_a_daemon()])[0]:
        end_process(pid)
    (late,) = pool.apply(lambda env: simulators.without_the_key())
say(zombies())
end_process(late)
while Path(f"/proc/{late}").exists():
    assert str(late) not in children()
say("reaped")
"""
    )
    assert run.read_line() == []
    assert run.read_line() == "reaped"
    assert run.await_end() == (0, "", "")


@pytest.mark.parametrize("end", ["os.kill(server, signal.SIGKILL)", "pool.close(); del pool; collect()"])
def test_workers_that_a_fork_server_did_not_reap_are_reaped(end: str, script: Callable[..., Script]) -> None:
    """The server was stopped when they died, and then ended."""
    run = script(
        TAKES_IN_ORPHANS
        + f"""
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
def test_a_worker_is_found_before_it_runs_after_an_interrupted_start(
    start_method: str, script: Callable[..., Script], tmp_path: Path
) -> None:
    """The worker has not yet run a line of its own code."""
    fifo = tmp_path / "fifo"
    (tmp_path / "pausing.py").write_text(f"""
import os
OWNER = os.getpid() if "{start_method}" == "fork" else None

def pause():
    if os.path.exists({str(fifo)!r}) and os.getppid() != OWNER:  # in a worker
        open({str(fifo)!r}).read()  # until somebody writes to it: for ever

os.register_at_fork(after_in_child=pause)
""")
    run = script(
        TAKES_IN_ORPHANS
        + f"""
sys.path.insert(0, {str(tmp_path)!r})
if "{start_method}" == "fork":
    import pausing
from remuda._backends.forkserver import client as forkserver
options = dict(start_method="{start_method}", preload=("pausing",))
with Pool(counting(2), **options) as pool:
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
        Pool(counting(2), **options)
    except KeyboardInterrupt:
        say(sorted({{*children()}} - before))
"""
    )
    assert run.read_line() == []
    assert run.await_end()[:2] == (0, "")
