"""The current stacks of a pool's workers. The worker that has been busy for the longest time comes first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from remuda._engine.stats.durations import span
from remuda._engine.stats.snapshot import WorkerStats
from remuda._relay.stacks import Stack, stack_of
from remuda._watch.open_pool import OpenPool

_PATIENCE = 30.0  # the seconds to wait for py-spy, which reads the symbols of every library.
_own_stack = partial(stack_of, patience=5.0)  # five seconds, because workers may be slow on a busy machine
_INSTALL = 'pip install "remuda-rl[stacks]" for the stacks of native code, and of the program itself'


@dataclass(frozen=True)
class WorkerStack:
    """The stack of one worker. The JSON of `remuda stacks` has these fields."""

    worker: int | None  # the worker's index; None: the program itself.
    pid: int | None  # the worker's pid; None: it has no process of its own
    doing: str
    seconds: float  # the seconds since the operation `doing` began.
    stack: str = ""  # the stack; empty if it is not known, or if the worker waits for a command.
    problem: str = ""  # the reason why the stack is not known
    is_busy: bool = False


def stacks_of(pool: OpenPool, *, native: bool) -> list[WorkerStack]:
    """Returns the stacks of the workers, the longest busy first. With `native` it uses py-spy if installed, which also
    shows native code and the program."""
    workers = [_described(worker) for worker in sorted(pool.look().workers, key=lambda one: -one.doing_since)]
    spy = py_spy() if native else None
    busy = [worker.pid for worker in workers if worker.pid is not None and worker.is_busy]
    stacks = _spied(spy, [pool.pid, *busy]) if spy else {pid: _own_stack(pid) for pid in busy}
    program = [_with_stack(WorkerStack(None, pool.pid, "", 0.0), stacks)] if spy else []
    return program + [_with_stack(worker, stacks) if worker.is_busy else worker for worker in workers]


def _with_stack(worker: WorkerStack, stacks: dict[int, Stack]) -> WorkerStack:
    if worker.pid is None:
        return replace(worker, problem="it has no process: see the program's threads")
    stack = stacks[worker.pid]
    return replace(worker, stack=stack.text, problem=stack.problem)


def _described(worker: WorkerStats) -> WorkerStack:
    if worker.doing is None:
        return WorkerStack(worker.index, worker.pid, "waits for something to do", 0.0)
    env = "" if worker.doing_env is None else f" env {worker.doing_env}"
    return WorkerStack(worker.index, worker.pid, f"{worker.doing}{env}", worker.doing_since, is_busy=True)


def py_spy() -> str | None:
    """Returns the path of py-spy, beside this Python or anywhere on the path; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _spied(spy: str, pids: list[int]) -> dict[int, Stack]:
    """Runs py-spy for all processes in parallel. If py-spy fails, the workers report their own stacks."""
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
        return Stack("\n".join(line.rstrip() for line in out.splitlines()[3:]))  # without py-spy's heading
    own, why = _own_stack(pid), " ".join(err.split())[-200:]
    return Stack(own.text, "" if own.text else f"py-spy: {why}")


def as_text(pool: OpenPool, stacks: list[WorkerStack]) -> str:
    """Returns the stacks as text for a terminal."""
    lines = [f"pool {pool.name} of process {pool.pid}: {pool.title}"]
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
