"""What every worker of a pool is in right now: of whom it takes longest first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from remuda._engine.stats.durations import span
from remuda._engine.stats.snapshot import WorkerStats
from remuda._relay.stacks import Stack, stack_of
from remuda._watch import start_page
from remuda._watch.owner import name_of
from remuda._watch.starting_pool import StartingPool
from remuda._watch.watched_pool import WatchedPool

_PATIENCE = 30.0  # seconds for py-spy, which reads the symbols of every library
_INSTALL = 'pip install "remuda[stacks]" for the stacks of native code, and of the program itself'


@dataclass(frozen=True)
class WorkerStack:
    """What one worker is in.

    Attributes:
        worker: Its index, or None for the program.
        pid: Of its process; None where it has none of its own.
        doing: In words.
        seconds: For how long.
        stack: The calls, as text; empty where it waits for something to do, or they are not known.
        problem: Why not; else empty.
        is_busy: Whether it is at something.
    """

    worker: int | None
    pid: int | None
    doing: str
    seconds: float
    stack: str = ""
    problem: str = ""
    is_busy: bool = False


def stacks_of(pool: WatchedPool | StartingPool, *, native: bool) -> list[WorkerStack]:
    """Of the program first, where py-spy is there; then of the workers, those that are at something longest first.

    `native`: with the calls of native code, by py-spy.
    """
    workers = _starting(pool) if isinstance(pool, StartingPool) else _working(pool)
    owner, spy = pool.card.owner, py_spy() if native else None
    wanted = [owner] if spy else []
    wanted += [worker.pid for worker in workers if worker.pid is not None and worker.is_busy]
    dumps = _spied(spy, wanted) if spy else {pid: stack_of(pid) for pid in wanted}
    of_program = [WorkerStack(None, owner, "", 0.0, dumps[owner].text, dumps[owner].problem)] if spy else []
    return of_program + [_with_stack(worker, dumps) for worker in workers]


def _with_stack(worker: WorkerStack, dumps: dict[int, Stack]) -> WorkerStack:
    if not worker.is_busy:
        return worker
    if worker.pid is None:
        return replace(worker, problem="it has no process: see the program's threads")
    dump = dumps.get(worker.pid, Stack())
    return replace(worker, stack=dump.text, problem=dump.problem)


def _working(pool: WatchedPool) -> list[WorkerStack]:
    """What the workers of an open pool do, those that have been at it longest first."""
    return [_of_worker(one) for one in sorted(pool.stats().workers, key=lambda worker: -worker.doing_since)]


def _of_worker(worker: WorkerStats) -> WorkerStack:
    if worker.doing is None:
        return WorkerStack(worker.index, worker.pid, "waits for something to do", 0.0)
    whose = "" if worker.doing_env is None else f" env {worker.doing_env}"
    return WorkerStack(worker.index, worker.pid, f"{worker.doing}{whose}", worker.doing_since, is_busy=True)


def _starting(pool: StartingPool) -> list[WorkerStack]:
    """What the workers of a pool do that is being started. Those that have built all their envs come last."""
    told: dict[int, WorkerStack] = {}
    for build in pool.builds():
        pid = None if build.pid == pool.card.owner else build.pid
        if build.seconds is not None and not build.is_built:
            doing = f"builds env {build.env_id}"
            told[build.worker] = WorkerStack(build.worker, pid, doing, build.seconds, is_busy=True)
        else:
            doing = "has built its envs" if build.is_built else "has not begun to build: it is being started"
            told.setdefault(build.worker, WorkerStack(build.worker, pid, doing, 0.0))
    return list(told.values())


def py_spy() -> str | None:
    """The program, beside this Python or anywhere on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _spied(spy: str, pids: list[int]) -> dict[int, Stack]:
    """Side by side. Where py-spy does not know this Python, or may not look, workers answer for themselves."""
    command = [spy, "dump", "--native", "--pid"]
    started = {
        pid: subprocess.Popen([*command, str(pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for pid in pids
    }
    return {pid: _answer(process, pid) for pid, process in started.items()}


def _answer(process: subprocess.Popen[str], pid: int) -> Stack:
    try:
        out, err = process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    if process.returncode == 0:
        return Stack("\n".join(line.rstrip() for line in out.splitlines()[3:]))  # without what is told of the process
    own, why = stack_of(pid), " ".join(err.split())[-200:]
    return Stack(own.text, "" if own.text else f"py-spy: {why}")


def as_text(pool: WatchedPool | StartingPool, stacks: list[WorkerStack]) -> str:
    """As a terminal shows them."""
    if isinstance(pool, StartingPool):
        what = start_page.title(pool)
    else:
        setup = pool.stats().setup
        what = f"{setup.num_envs} envs in {setup.num_workers} {setup.backend} workers"
    lines = [f"pool {name_of(pool.card)} of process {pool.card.owner}: {what}"]
    for stack in stacks:
        lines += ["", _heading(stack)]
        lines += [f"    {line}" for line in (stack.stack or stack.problem).splitlines()]
    if py_spy() is None:
        lines += ["", _INSTALL]
    return "\n".join(lines)


def _heading(stack: WorkerStack) -> str:
    if stack.worker is None:
        return f"the program (pid {stack.pid})"
    process = "" if stack.pid is None else f" (pid {stack.pid})"
    since = f" for {span(stack.seconds)}" if stack.seconds else ""
    return f"worker {stack.worker}{process}: {stack.doing}{since}"
