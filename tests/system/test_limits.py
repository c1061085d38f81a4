"""Limits of the system are checked before a pool starts, and reported clearly if they are met later."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from control_group import ControlGroup
from fake_root import GROUPS, make_root, write
from pool_envs import counting, hooked
from programs import Script, kill

from remuda import Pool, WorkerDiedError
from remuda._backends.process import backend as process
from remuda._system.limits import _cgroup_limit
from remuda._system.oom import OomWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")

START_METHODS = ("forkserver", "fork")  # `test_start_methods.py` has all


# -- descriptors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_the_error_for_a_low_limit_suggests_a_sufficient_one(start_method: Any, script: Callable[..., Script]) -> None:
    """The soft limit that the message suggests is enough. With a low hard limit, another remedy is named."""
    run = script(
        f"""
import resource
from remuda._system import finalizers
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard))
finalizers.prepare()  # the first pool starts this thread, which remains
before = sorted(os.listdir("/proc/self/fd")), threading.enumerate()
try:
    Pool(counting(8), start_method="{start_method}")
except ResourceError as error:
    say([error.errno, str(error)])
say((sorted(os.listdir("/proc/self/fd")), threading.enumerate()) == before)
say(Path(f"/proc/self/task/{{os.getpid()}}/children").read_text())
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.stdin.readline()), hard))
with Pool(counting(8), start_method="{start_method}") as pool:
    say(len(pool.reset().obs))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
try:
    Pool(counting(60), start_method="{start_method}")
except ResourceError as error:
    say(str(error))
"""
    )
    number, text = run.read_line()
    assert number == 24
    assert re.search(
        r"expected 30 free file descriptors for 8 worker processes, got \d+ \(of the 20 that `ulimit -n`", text
    )
    advised = re.search(r"raise the soft limit before you make the pool: `ulimit -n (\d+)`", text)
    assert advised
    assert run.read_line() is True
    assert run.read_line() == ""  # no process was started
    assert run.process.stdin is not None
    run.process.stdin.write(advised[1])
    run.write_line()
    assert run.read_line() == 8
    assert re.search("expected 134 free .* for 60 worker processes.*have the hard limit of 40 raised", run.read_line())
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")


@pytest.mark.parametrize("start_method", START_METHODS)
def test_running_out_of_descriptors_after_the_check_leaves_nothing(
    start_method: Any, script: Callable[..., Script]
) -> None:
    """Files are opened between the check and the start: by a factory's pickling, or at a fork."""
    run = script(
        f"""
import resource
from pool_envs import CountingEnv

opened = []

def open_many():
    while len(os.listdir("/proc/self/fd")) < 58:
        opened.append(open("/dev/null"))

class Greedy:
    def __reduce__(self):
        open_many()
        return CountingEnv, ()

    def __call__(self):
        return CountingEnv()

Pool(counting(1), start_method="{start_method}").close()
if "{start_method}" == "fork":
    os.register_at_fork(before=open_many)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
before = len(os.listdir("/proc/self/fd"))
try:
    Pool([Greedy()] * 12, start_method="{start_method}")
except OSError as error:
    say([type(error).__name__, error.errno])
count = len(opened)
say(len(os.listdir("/proc/self/fd")) == before + count)
say([path.read_text().split() for path in Path("/proc/self/task").glob("*/children")])
"""
    )
    assert run.read_line() == ["OSError", 24]
    assert run.read_line() is True
    children = sum(run.read_line(), [])
    assert len(children) == (1 if start_method == "forkserver" else 0)
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")


# -- processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("limit", ["ulimit -u", "control group"])
def test_a_limit_of_processes_is_reported(
    limit: str, start_method: Any, script: Callable[..., Script], request: pytest.FixtureRequest
) -> None:
    crowd = ControlGroup("pids") if limit == "control group" else None
    run = script(
        f"""
import resource
if {crowd is None} and os.getuid() == 0:  # whom `ulimit -u` does not bind
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    pool = Pool(counting(1), start_method="{start_method}")
    (parent,) = pool.apply(lambda env: os.getppid())  # it must live
except Exception as error:
    say(f"not as another user: {{error!r}}")
    sys.exit()
say("")
say([parent, os.getpid()])
sys.stdin.readline()
for pid in (parent, os.getpid()) if {crowd is None} else ():
    resource.prlimit(pid, resource.RLIMIT_NPROC, (1, 1000))
before = len(os.listdir("/proc/self/fd"))
try:
    Pool(counting(3), start_method="{start_method}")
except ResourceError as error:
    say([error.errno, str(error)])
say(len(os.listdir("/proc/self/fd")) == before)
pool.close()
"""
    )
    if reason := run.read_line():
        run.await_end()
        pytest.skip(reason)
    pids = run.read_line()
    if crowd is not None:
        request.addfinalizer(crowd.remove)
        crowd.add(*pids)
        crowd.set("pids.max", "1")
    run.write_line()
    number, text = run.read_line()
    assert number == 11
    assert "expected to start a worker process, got 'Resource temporarily unavailable'" in text
    assert crowd or "`ulimit -u` allows this user 1 (hard limit 1000), threads counted" in text
    assert run.read_line() is True
    code, out, _ = run.await_end()
    assert (code, out) == (0, "")


def test_the_tightest_control_group_is_reported(tmp_path: Path) -> None:
    cgroup, files = "8:pids:/slurm/job\n0::/slurm/job\n", {}
    assert _cgroup_limit(make_root(tmp_path, cgroup, {})) is None
    for group, most, current in (("pids/slurm/job", "max", 5), ("pids/slurm", "100", 95), ("slurm", "60", 20)):
        files |= {f"{group}/pids.max": f"{most}\n", f"{group}/pids.current": f"{current}\n"}
    assert _cgroup_limit(make_root(tmp_path, cgroup, files)) == f"95 of 100 (in {tmp_path / GROUPS / 'pids/slurm'})"


# -- memory ----------------------------------------------------------------------------------------------


def kills(count: int) -> str:
    return f"low 0\nhigh 0\nmax 7\noom {count + 3}\noom_kill {count}\noom_group_kill 0\n"


def test_with_version_2_the_counter_of_the_own_group_decides(tmp_path: Path) -> None:
    groups = make_root(tmp_path, "0::/a/b\n", {}) / GROUPS
    own, outer = write(groups / "a/b/memory.events", kills(3)), write(groups / "a/memory.events", kills(5))
    vmstat = write(tmp_path / "proc/vmstat", "nr_free_pages 1\noom_kill 17\n")
    watch = OomWatch(tmp_path)
    vmstat.write_text("oom_kill 18\n")  # anybody's
    assert watch.judge().out_of_memory is False
    own.write_text(kills(4))
    outer.write_text(kills(6))
    verdict = watch.judge()
    assert verdict.out_of_memory is True
    assert f"the kernel ran out of memory (oom_kill rose from 3 to 4 in {own})" in verdict.evidence
    verdict = watch.judge()  # that kill is attributed already, including its count in the outer group
    assert verdict.out_of_memory is False
    assert "not by the kernel's out-of-memory killer as far as its counters show" in verdict.evidence
    own.write_text(kills(6))  # two at once
    outer.write_text(kills(8))
    assert [watch.judge().out_of_memory for _ in range(3)] == [True, True, False]


OLD = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
MACHINE = "proc/vmstat", "oom_kill 17\n", "oom_kill 18\n", True, "most likely .* rose from 17 to 18 in"
OUTER = f"{GROUPS}/a/memory.events", kills(5), kills(6), None, "perhaps .* rose from 5 to 6"
# A container finds its group: the path in /proc is the host's, and the group is mounted as the root group.
CONTAINER = f"{GROUPS}/memory/memory.oom_control", OLD.format(0), OLD.format(1), True, ""


@pytest.mark.parametrize(
    ("cgroup", "counter", "before", "after", "verdict", "evidence"),
    [
        pytest.param("0::/a/b\n", *OUTER, id="the own group counts no kill, but an outer one does"),
        pytest.param("5:cpu:/x\n4:memory:/docker/01\n0::/\n", *CONTAINER, id="version 1, in a container"),
        pytest.param("0::/\n", *MACHINE, id="without counters of control groups, the machine's"),
        pytest.param("", *MACHINE, id="without control groups"),
        pytest.param("nonsense\n", *MACHINE, id="nonsense"),
    ],
)
def test_the_nearest_counter_that_has_risen_decides_or_leaves_the_cause_open(
    cgroup: str, counter: str, before: str, after: str, verdict: bool | None, evidence: str, tmp_path: Path
) -> None:
    path = write(make_root(tmp_path, cgroup, {"a/b/memory.events": kills(3)}) / counter, before)
    watch = OomWatch(tmp_path)
    assert watch.judge().out_of_memory is False
    path.write_text(after)
    found = watch.judge()
    assert found.out_of_memory is verdict
    assert re.search(evidence, found.evidence)


def test_without_counters_the_cause_is_unknown(tmp_path: Path) -> None:
    verdict = OomWatch(make_root(tmp_path, "0::/\n", {})).judge()
    assert verdict.out_of_memory is None and "cannot be read here" in verdict.evidence


def test_a_death_report_says_if_memory_had_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vmstat = write(tmp_path / "proc/vmstat", "oom_kill 3\n")
    monkeypatch.setattr(process, "OomWatch", partial(OomWatch, tmp_path))
    with Pool(counting(3), num_workers=None) as pool:
        pool.reset()
        vmstat.write_text("oom_kill 4\n")
        for worker, expected in ((0, True), (2, False)):
            kill(pool, worker)
            with pytest.raises(WorkerDiedError, match="killed by SIGKILL: ") as raised:
                pool.call("pid", env_ids=[worker])
            assert raised.value.out_of_memory is expected
        assert pool.call("tag", env_ids=[1]) == [1]

    def die(env: Any) -> None:
        vmstat.write_text("oom_kill 5\n")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDiedError, match="oom_kill rose from 4 to 5") as raised:
        Pool(hooked(1, (0,), build=die), num_workers=None)
    assert raised.value.out_of_memory is True
    with pytest.raises(WorkerDiedError, match="it exited with code 3") as raised:
        Pool(hooked(1, (0,), build=lambda *_: os._exit(3)), num_workers=None)
    assert raised.value.out_of_memory is None


# -- locked memory ---------------------------------------------------------------------------------------


def test_a_program_may_lock_its_memory(script: Callable[..., Script]) -> None:
    """The kernel gives memory to all addresses that such a program maps, and counts them against RLIMIT_MEMLOCK."""
    run = script(
        """
import resource
from remuda._system.memory import addressable_bytes

def use_a_pool():
    with Pool(counting(2), backend="serial") as pool:
        pool.reset()
        batch = pool.step([3, 4])
        pid = os.fork()
        if pid == 0:  # the child has a copy of the memory that `batch` views
            os._exit(int(batch.rewards.sum()))
        rollout = pool.rollout(2)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

assert use_a_pool() == 7  # imports all modules
libc = ctypes.CDLL(None)
version, capabilities = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(version, capabilities) == 0
capabilities[0] &= ~(1 << 14)  # CAP_IPC_LOCK
assert libc.capset(version, capabilities) == 0
hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
limit = min(1 << 28, hard) if hard >= 0 else 1 << 28
assert addressable_bytes() > limit
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, hard))
MCL_FUTURE = 2
assert libc.mlockall(MCL_FUTURE) == 0
assert use_a_pool() == 7
locked = re.search(r"VmLck:\\s*(\\d+)", Path("/proc/self/status").read_text())
say(int(locked[1]) * 1024 < limit)
"""
    )
    assert run.read_line() is True
    assert run.await_end() == (0, "", "")
