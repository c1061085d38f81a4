"""Exit codes of workers are reported correctly, and no other process is signalled in place of a worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import simulators
from failing import LIMIT
from pool_envs import counting, hooked
from programs import Script, Watched, end_process, kill, pids_of

from remuda import EnvTimeoutError, FaultPolicy, Pool

START_METHODS = ("forkserver", "fork")  # `test_start_methods.py` has all


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_program_that_ignores_sigchld(start_method: str, script: Callable[..., Script], tmp_path: Path) -> None:
    """The kernel reports no exit codes to such a program, but to the fork server and the template."""
    (tmp_path / "remuda_test_dying.py").write_text("import os; os._exit(3)")
    run = script(f"""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def step(env, action):
    if action == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    code = subprocess.run(["sh", "-c", "exit 3"]).returncode
    return env.observe(), code, False, False, {{}}

fns = hooked(2, (0, 1), step=step)
with Pool(fns, start_method="{start_method}") as pool:
    pool.reset()
    say(pool.step([0, 0]).rewards.tolist())
    try:
        pool.step([1, 0])
    except WorkerDiedError as error:
        say([error.exitcode, str(error)])
with Pool(fns, start_method="{start_method}", faults="restart") as pool:
    pool.reset()
    pool.step([1, 1])
    say(pool.step([0, 0]).truncations.tolist())
try:
    Pool(counting(1), preload=["remuda_test_dying"])
except RemudaError as error:
    say(str(error))
""")
    assert run.read_line() == [3, 3]  # exit codes are available in workers
    code, message = run.read_line()
    assert code == -signal.SIGSEGV
    assert "killed by SIGSEGV" in message
    assert run.read_line() == [False, False]
    assert re.search("it exited with code 3|its exit code is unknown", run.read_line())  # that of the fork server
    assert run.await_end()[:2] == (0, "")


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_program_that_waits_for_all_its_children(start_method: str, script: Callable[..., Script]) -> None:
    """The program or the pool's supervisor takes a worker's exit code, whichever is the first."""
    run = script(f"""
pool = Pool(counting(2), start_method="{start_method}")
pool.reset()
os.kill(pids(pool)[0], signal.SIGKILL)
with suppress(ChildProcessError):
    os.waitpid(pids(pool)[0], 0)
try:
    pool.step([0, 0])
except WorkerDiedError as error:
    say(error.exitcode)
pool.close()
""")
    assert run.read_line() in (-signal.SIGKILL, None)
    assert run.await_end() == (0, "", "")


def test_a_reused_pid_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's exit code was taken by the process that adopts the orphans of a dead fork server."""
    with (
        subprocess.Popen(["sleep", "100000"], start_new_session=True) as bystander,
        Pool(counting(2), num_workers=None) as pool,
    ):
        (server, _) = pool.apply(lambda env: os.getppid())
        end_process(server)
        process: Any = pool.workers[0]
        kill(pool, 0)
        while _has_pid(process.process.pidfd):
            with suppress(ChildProcessError):  # the worker is no child of this process
                os.waitid(os.P_PIDFD, process.process.pidfd, os.WEXITED)
        monkeypatch.setattr(process.process, "pid", bystander.pid)  # as if the system had reused the worker's pid
        pool.close()
        assert bystander.poll() is None
        bystander.kill()


def _has_pid(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("start_method", START_METHODS)  # spawned workers lead sessions, and cannot leave their group
def test_a_worker_that_has_left_its_group_is_ended(start_method: Any) -> None:
    """The pool kills it if it hangs or is stopped."""

    def leave(*_: Any) -> None:
        simulators.leave_the_group()
        signal.pause()

    faults = FaultPolicy("raise", step_timeout=LIMIT)
    pool = Pool(hooked(2, step=leave), start_method=start_method, faults=faults, num_workers=None)
    pool.reset()
    watched = Watched([*pids_of(pool), *pool.apply(lambda env: simulators.leave_the_group(), env_ids=[0])])
    with pytest.raises(EnvTimeoutError):
        pool.step([0, 0])
    os.kill(pids_of(pool)[0], signal.SIGSTOP)
    pool.close(terminate=True)
    watched.await_end()


# -- without /proc or free descriptors ------------------------------------------------------------------


@pytest.mark.parametrize("start_method", START_METHODS)
def test_simulators_end_without_free_descriptors(start_method: Any, script: Callable[..., Script]) -> None:
    run = script(f"""
import resource, simulators
pool = Pool(counting(2), start_method="{start_method}")
pool.reset()
say(sum(pool.apply(lambda env: list(simulators.start_all().values())), []))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
pool.close()
say("closed")
sys.stdin.readline()
""")
    assert run.await_end_of_processes(then="closed") == (0, "", "")


def test_a_missing_proc_is_reported(script: Callable[..., Script], tmp_path: Path) -> None:
    """Processes that left a worker's group may run until the program ends."""
    if subprocess.run(["chroot", "/", "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no program can lose /proc here")
    run = script(f"""
import simulators
pool = Pool(counting(1))
pool.reset()
say(pool.apply(lambda env: [simulators.in_the_group(), simulators.in_a_session()])[0])
os.chroot({str(tmp_path)!r})  # for all threads, unlike a mount
pool.close()
""")
    watched = Watched(run.read_line())
    _, err = run.process.communicate()
    assert "expected to find in /proc what the workers that ended have started, got 'No such file or directory'" in err
    assert run.process.returncode == 0
    watched.await_end()  # the watcher still sees /proc
