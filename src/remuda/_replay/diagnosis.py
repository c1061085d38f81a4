"""Compares the outcome of a replay with the crash record, and lists why they may differ."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium
import numpy as np

from remuda._crash.record import Record
from remuda._replay.plan import Op, Plan, Reset, Step
from remuda._replay.play import Outcome
from remuda._wording import describe_exitcode

_SIGKILLED = -9  # a process's exit code; a number because not every system has `signal.SIGKILL`


@dataclass(frozen=True)
class Diagnosis:
    """The result of a replay.

    Attributes:
        reproduced: Whether the env failed in the same place in the same way.
        text: The end of the replay, as text.
        reasons: Possible reasons if it was not reproduced.
        traceback: The traceback of the env's exception; otherwise empty.
    """

    reproduced: bool
    text: str
    reasons: Sequence[str] = ()
    traceback: str = ""


def judge(record: Record, plan: Plan, outcome: Outcome) -> Diagnosis:
    text = f"{_what(outcome)} {_where(plan, outcome)}"
    traceback = "" if outcome.raised is None else outcome.raised.traceback
    if outcome.reached == len(plan.ops) - 1 and _is_the_same(record, outcome):
        return Diagnosis(True, text, traceback=traceback)
    return Diagnosis(False, text, _reasons(record, plan, outcome), traceback)


def _is_the_same(record: Record, outcome: Outcome) -> bool:
    fault = record.fault
    if fault.kind == "exception":
        return outcome.raised is not None and outcome.raised.type_name == fault.type_name
    if fault.kind == "timeout":
        return outcome.end == "late"
    if fault.kind == "corrupt":  # in a replay, the env overwrites memory of the replay's process, which may die or hang
        return outcome.end in ("died", "spoilt", "late")
    return outcome.end == "died" and outcome.exitcode == fault.exitcode


def _what(outcome: Outcome) -> str:
    if outcome.raised is not None:
        message = f": {outcome.raised.message}" if outcome.raised.message else ""
        return f"the env raised {outcome.raised.type_name}{message} in"
    return {
        "finished": "nothing failed: the env went on after",
        "late": "the env did not come back from",
        "spoilt": "the env wrote over memory that is not its own in",
        "died": f"the process died ({describe_exitcode(outcome.exitcode)}) in",
    }[outcome.end]


def _where(plan: Plan, outcome: Outcome) -> str:
    if outcome.reached < 0:
        return "the making of the env"
    return describe_op(plan.ops, outcome.reached)


def describe_op(ops: Sequence[Op], index: int) -> str:
    op = ops[index]
    if isinstance(op, Step):
        return f"step {op.number}"
    later = sum(isinstance(other, Reset) for other in ops[index + 1 :])
    return "the reset of the last episode" if later == 0 else f"a reset, {later} before the last"


def _reasons(record: Record, plan: Plan, outcome: Outcome) -> list[str]:
    """Returns possible reasons why the outcome of a replay differs from the record, the likeliest first."""
    reasons = []
    fault = record.fault
    if fault.operation in ("call", "nothing", "observe"):
        doing = {"call": "in a call", "observe": "while it was observed"}.get(fault.operation, "while it was idle")
        reasons.append(f"it failed {doing}, which the record does not contain: only the calls before it are replayed")
    if fault.exitcode == _SIGKILLED and fault.kind == "death":
        reasons.append("SIGKILL comes from outside: from the kernel, when memory runs out, or from another program")
    if fault.kind == "corrupt":
        reasons.append("the env wrote to memory of the pool, which a replay does not have")
    if outcome.raised is not None and outcome.raised.operation == "build":
        reasons.append("the factory needs something that is not here: a file, a device, a variable of the environment")
    if record.calls:
        reasons.append(f"the program had called the env {record.calls} times: what that did is not recorded")
    if len(record.env_ids) > 1:
        reasons.append("other envs of the same worker may have had a part in it: their memory, modules, np.random")
    if plan.extent == "episode" and not record.is_first_episode:
        reasons.append("the env may keep more from one episode to the next than its random state")
    return [
        *reasons,
        "the env may draw from elsewhere than its np_random: the modules random and np.random, its spaces",
        "time, threads, devices, or another program (a simulator) may have had a part in it",
        *_changes(record),
    ]


def _changes(record: Record) -> list[str]:
    now = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "platform": platform.platform(),
    }
    pairs = [(name, record.versions.get(name), here) for name, here in now.items()]
    return [f"{name} was {then}, and here is {here}" for name, then, here in pairs if then != here]
