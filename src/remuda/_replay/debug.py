"""Replays a crash record in the calling process, with a debugger at the failure."""

from __future__ import annotations

import pdb
from bdb import BdbQuit
from typing import Any

from remuda._crash.record import Record
from remuda._replay.harness import Harness
from remuda._replay.plan import Op, Plan, Reset
from remuda._replay.play import Outcome, Raised
from remuda._replay.unpickling import Unpickled
from remuda._worker.worker_info import WorkerInfo, settle_in_process


def debug(record: Record, unpickled: Unpickled, plan: Plan) -> Outcome:
    """Follows a plan. If the env raises, the debugger shows the exception. If the recorded env died or hung instead,
    the debugger stops before the fatal call, where `env` and the call's arguments are variables.

    Raises: RecordError.
    """
    settle_in_process(WorkerInfo(record.worker, record.num_workers, record.env_ids))
    harness = Harness(record, unpickled)
    try:
        return _follow(record, plan, harness)
    finally:
        harness.close()


def _follow(record: Record, plan: Plan, harness: Harness) -> Outcome:
    stops = plan.is_cut or record.fault.kind != "exception"
    for i, op in enumerate(plan.ops):
        if stops and i == len(plan.ops) - 1:
            return _stop_before(harness, op, i)
        harness.perform(op)
        if harness.error is not None:
            pdb.post_mortem(harness.error.__traceback__)
            return Outcome(i, raised=Raised.of(harness.error, harness.operation))
    return Outcome(len(plan.ops) - 1, finished=True)


def _stop_before(harness: Harness, op: Op, index: int) -> Outcome:
    try:
        if isinstance(op, Reset):
            reset_here(harness.env, harness.prepare(op))
        else:
            step_here(harness.env, harness.action(op.index))
    except BdbQuit:
        return Outcome(index)
    except Exception as error:
        return Outcome(index, raised=Raised.of(error, "reset" if isinstance(op, Reset) else "step"))
    return Outcome(index, finished=True)


def step_here(env: Any, action: Any) -> Any:
    pdb.set_trace(header="`env` is about to step, with `action`; `s` steps into it")
    return env.step(action)


def reset_here(env: Any, arguments: dict[str, Any]) -> Any:
    pdb.set_trace(header="`env` is about to be reset, with `arguments`; `s` steps into it")
    return env.reset(**arguments)
