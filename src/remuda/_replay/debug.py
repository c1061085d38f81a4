"""Replays a crash record in the calling process, with a debugger at the failure."""

from __future__ import annotations

import pdb
from contextlib import suppress
from typing import Any

from remuda._crash.record import Record
from remuda._replay.harness import Harness
from remuda._replay.plan import Op, Plan, Reset
from remuda._replay.play import Outcome, follow
from remuda._replay.recorded_code import RecordedCode
from remuda._worker.worker_info import WorkerInfo, settle_in_process


def debug(record: Record, code: RecordedCode, plan: Plan) -> Outcome | None:
    """Replays a plan in this process. If the env raises, the debugger shows the exception.

    If the recorded env died or hung instead, or the plan is cut, the debugger stops before the last call, with `env`
    and the call's arguments as variables.

    Returns: The outcome; None if the debugger stops before the last call.

    Raises: RecordError.
    """
    settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
    harness = Harness(record, code)
    stops_before_last = plan.is_cut or record.fault.kind != "exception"
    try:
        outcome = follow(plan.ops[:-1] if stops_before_last else plan.ops, harness)
        if harness.error is not None:
            pdb.post_mortem(harness.error.__traceback__)
        elif stops_before_last:
            _stop_before(plan.ops[-1], harness)
        return None if stops_before_last else outcome
    finally:
        harness.close()


def _stop_before(op: Op, harness: Harness) -> None:
    if isinstance(op, Reset):
        arguments = harness.prepare(op)
        with suppress(Exception):  # the debugger has shown the exception, or was quit
            reset_here(harness.env, arguments)
    else:
        action = harness.action(op.index)
        with suppress(Exception):
            step_here(harness.env, action)


def step_here(env: Any, action: Any) -> Any:
    pdb.set_trace(header="`env` is about to step, with `action`; `s` steps into it")
    return env.step(action)


def reset_here(env: Any, arguments: dict[str, Any]) -> Any:
    pdb.set_trace(header="`env` is about to be reset, with `arguments`; `s` steps into it")
    return env.reset(**arguments)
