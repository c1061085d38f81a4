"""With the start method "fork", nothing forks the program after it has made the pool: a template forks the workers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pairs import each
from pool_envs import CountingEnv, Gate, counting
from programs import (
    Script,
    Watched,
    children,
    collect,
    end_process,
    held_by,
    holdings,
    kill,
    pids_of,
    step_until_restarted,
)

from remuda import FaultPolicy, Pool, RestartLimitError
from remuda._backends.forkserver import client

AT_ONCE = FaultPolicy("restart", backoff=0, max_restarts=1000)


def forked(num_envs: int = 2, **options: Any) -> Pool:
    return Pool(counting(num_envs), **{"start_method": "fork", "faults": AT_ONCE, "num_workers": None, **options})


def template_of(pool: Pool) -> int:
    (template,) = set(pool.apply(lambda env: os.getppid()))
    assert template in children()
    return int(template)


# -- nothing forks beside the program ---------------------------------------------------------------------


@pytest.mark.parametrize("renew_every", [None, 1])
def test_handlers_of_forks_are_called_only_when_the_pool_is_made(
    renew_every: int | None, script: Callable[..., Script]
) -> None:
    """The learner holds the lock that the handler takes, while it waits for a successor of a killed or old worker."""
    run = script(f"""
from programs import kill, step_until_restarted
lock, calls = threading.Lock(), []

def before():
    calls.append(os.getpid())
    lock.acquire()

os.register_at_fork(before=before, after_in_parent=lock.release, after_in_child=lock.release)
fns = [lambda: CountingEnv(tag=len(calls), length=1)] * 3
faults = FaultPolicy("restart", backoff=0, renew_every={renew_every})
with Pool(fns, start_method="fork", faults=faults, autoreset="same_step") as pool:
    say(calls == [os.getpid()])
    pool.reset()
    with lock:
        step_until_restarted(pool, 1, pids(pool)[1] if {renew_every} else kill(pool, 1))
    say(calls == [os.getpid()])
    say(pool.get_attr("tag"))
""")
    assert run.read_line() is True
    assert run.read_line() is True
    # The program's fork, and those of the template: three workers and their successors.
    assert renew_every or run.read_line() == [2, 5, 4]
    assert run.await_end()[0] == 0


# -- what workers inherit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("renew_every", [None, 1])
def test_successors_build_envs_with_factories_that_cannot_be_pickled(renew_every: int | None) -> None:
    lock = threading.Lock()

    def make(tag: int) -> Callable[[], CountingEnv]:
        def build() -> CountingEnv:
            with lock:
                return CountingEnv(tag, length=1)

        return build

    faults = FaultPolicy("restart", backoff=0, renew_every=renew_every)
    fns = [make(tag) for tag in range(4)]
    num_workers = 4 if renew_every else 2
    with Pool(fns, num_workers=num_workers, start_method="fork", faults=faults, autoreset="same_step") as pool:
        pool.reset()
        before = pids_of(pool)
        for _ in range(3):
            step_until_restarted(pool, 1, kill(pool, 1))
        assert pool.get_attr("tag") == [0, 1, 2, 3]
        assert not renew_every or before[0] not in pids_of(pool)
        pool.replace([3], [lambda: CountingEnv(30, length=1)])
        pool.reset()
        step_until_restarted(pool, num_workers - 1, kill(pool, num_workers - 1))
        assert pool.get_attr("tag") == [0, 1, 2, 30]  # env 2 by its own factory, in the same worker or another


def test_successors_have_the_memory_of_the_start_and_the_environment_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, here, path = [7], os.getcwd(), str(tmp_path)

    def look(env: Any) -> Any:
        return env.tag, os.environ.get("REMUDA_TEST_VARIABLE"), os.getcwd(), path in __import__("sys").path

    with Pool([lambda: CountingEnv(memory[0])] * 2, start_method="fork", faults=AT_ONCE) as pool:
        memory[0] = 8
        monkeypatch.setenv("REMUDA_TEST_VARIABLE", "new")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(tmp_path)
        pool.reset()
        step_until_restarted(pool, 1, kill(pool, 1))
        assert pool.apply(look) == [(7, None, here, False), (7, "new", path, True)]


def test_output_that_waits_in_a_buffer_is_printed_once(script: Callable[..., Script]) -> None:
    run = script(
        """
from programs import kill, step_until_restarted
sys.stdout.write("once ")
with Pool(counting(2), start_method="fork", faults=FaultPolicy("restart", backoff=0)) as pool:
    pool.reset()
    sys.stdout.write("and no more")
    step_until_restarted(pool, 1, kill(pool, 1))
""",
        PYTHONUNBUFFERED="",
    )
    assert run.await_end()[:2] == (0, "once and no more")


def test_templates_and_forked_workers_hold_no_descriptors_of_other_workers_and_pools() -> None:
    of_others = {*held_by("self", "socket:").values()}
    with Pool(counting(2), faults=AT_ONCE) as of_server, forked() as one, forked(3, worker_output="capture") as other:
        for pool in (of_server, one, other):
            pool.reset()
        templates = [template_of(one), template_of(other)]
        assert len({*templates}) == 2
        kill(other, 2)  # its successor starts when all pools have an arena
        other.reset()
        workers, own = pids_of(other), {*held_by("self", "socket:").values()}
        for pid in (*templates, *workers):
            held = {*held_by(pid, "socket:").values()}
            assert held & own <= of_others or pid in workers
            assert not held_by(pid, "remuda-payload")
            assert not held_by(pid, "memfd:remuda ")
            assert bool(held_by(pid, "memfd:remuda-output")) == (pid in workers)
        # All workers share one socket, through which they send their logs.
        assert len({link for pid in workers for link in held_by(pid, "socket:").values()} & own) == 1
        end_process(templates[0])
        step_until_restarted(other, 1, kill(other, 1))
        assert one.step([1, 2]).rewards.tolist() == [1, 2]


# -- the end of the template ------------------------------------------------------------------------------


def close_with_a_stopped_template(pool: Pool) -> None:
    pool.reset()
    os.kill(template_of(pool), signal.SIGSTOP)
    pool.close()


def leave_to_the_garbage_collection(pool: Pool) -> None:
    cycle: list[Any] = [pool]
    cycle.append(cycle)


@each(end=[Pool.close, close_with_a_stopped_template, leave_to_the_garbage_collection], faults=["raise", "restart"])
def test_the_template_ends_with_its_pool(end: Callable[[Pool], None], faults: Any) -> None:
    forked().close()  # opens what remains between pools
    collect()
    before = holdings()
    pool = forked(faults=faults)
    watched = Watched([template_of(pool), *pids_of(pool)])
    end(pool)
    del pool
    collect()
    watched.await_end()
    collect()  # the finalizers of what the first ones have freed
    assert {**holdings(), "threads": 0} == {**before, "threads": 0}  # the thread of the finalizers stays


def test_an_interrupt_in_the_terminal_does_not_reach_the_template(script: Callable[..., Script]) -> None:
    run = script("""
from programs import kill, step_until_restarted
with Pool(counting(2), start_method="fork", faults=FaultPolicy("restart", backoff=0)) as pool:
    pool.reset()
    try:
        os.killpg(0, signal.SIGINT)
        threading.Event().wait()
    except KeyboardInterrupt:
        step_until_restarted(pool, 1, kill(pool, 1))
        say("restarted")
""")
    assert run.read_line() == "restarted"
    assert run.await_end()[0] == 0


@each(
    end__says=[
        ("killed", "worker 1 could not be started: the process that forks workers died: killed by SIGKILL"),
        ("stopped", "the process that forks workers was ended, because it did not answer in time"),
    ],
    policy=[{}, {"resets": "report"}],
)
def test_the_end_of_a_template_is_reported_by_failed_restarts(
    end: str, says: str, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers remain alive."""
    faults = FaultPolicy("restart", backoff=0, max_restarts=2, **policy)
    with forked(3, faults=faults, autoreset="disabled", start_timeout=None) as pool:
        pool.reset()
        template = Watched([template_of(pool)])
        os.kill(template.pids[0], signal.SIGSTOP if end == "stopped" else signal.SIGKILL)
        monkeypatch.setattr(client, "_PATIENCE", 0.1)  # only now, because a busy machine forks slowly
        assert pool.step([1, 2, 3]).rewards.tolist() == [1, 2, 3]
        kill(pool, 1)
        with pytest.raises(RestartLimitError, match=says) as caught:
            while True:
                pool.reset()
        template.await_end()
        assert [fault.env_id for fault in caught.value.faults] == [1, 1, 1]
        assert [pool.workers[index].is_alive() for index in range(3)] == [True, False, True]
    assert not any(worker.is_alive() for worker in pool.workers)


def test_a_template_killed_while_it_forks_ends_the_start(script: Callable[..., Script], tmp_path: Path) -> None:
    """The program has a copy of the template's end of the socket, as a process that forks at the same time might."""
    gate = Gate(tmp_path)
    run = script(f"""
import stat
OWNER, gate, copies = os.getpid(), {gate!r}, []

def before():
    if os.getpid() != OWNER:
        gate.wait()
    for fd in range(3, 64):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                copies.append(os.dup(fd))

os.register_at_fork(before=before)
Pool(counting(1), start_method="fork", start_timeout=None)
""")
    gate.await_arrival()
    (template,) = children(run.process.pid)
    os.kill(template, signal.SIGKILL)
    code, _, err = run.await_end()
    assert code == 1
    assert "the process that forks workers died: killed by SIGKILL" in err
