"""Tells of workers that have not built their envs in time."""

from __future__ import annotations

import textwrap

from remuda._backends.process.process_worker import ProcessWorker
from remuda._relay.stacks import stack_of
from remuda.errors import StartTimeoutError


def start_timeout(late: list[ProcessWorker], timeout: float | None) -> StartTimeoutError:
    envs = [env_id for worker in late for env_id in worker.env_ids]
    expected = f"expected every env to be built within start_timeout={timeout} s, got no answer for the envs {envs} "
    whose = f"(workers {[worker.index for worker in late]}); "
    if late[0].process is None:
        return StartTimeoutError(
            f"{expected}{whose}the fork server did not even start them: it may still be importing the modules "
            "in preload=[...]; give it more time"
        )
    text = f"{expected}{whose}give it more time, or preload=[...] the modules they import"
    if stack := _without_ours(stack_of(late[0].process.pid).text):
        text += f"\n  worker {late[0].index} was in, the last call first:\n{textwrap.indent(stack, '    ')}"
    return StartTimeoutError(text)


def _without_ours(stack: str) -> str:
    """Down to the factory: what called that is the worker's affair."""
    lines = stack.splitlines()
    while lines and "/remuda/_worker/" in lines[-1]:
        lines.pop()
    return "\n".join(lines)
