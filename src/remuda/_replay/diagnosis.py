"""Compares the outcome of a replay with the crash record, and lists why they may differ."""

from __future__ import annotations

from remuda._crash.record import CrashRecord
from remuda._replay.plan import Plan, Reset, Step
from remuda._replay.player import Outcome
from remuda._wording import describe_exitcode

_SIGKILLED = -9  # a process's exit code; a number because not every system has `signal.SIGKILL`


def is_reproduced(record: CrashRecord, plan: Plan, outcome: Outcome) -> bool:
    """Returns whether the env failed in the same place in the same way."""
    fault = record.fault
    if outcome.reached != len(plan) - 1:
        return False
    if fault.kind == "exception":
        return outcome.end == "raised" and outcome.type_name == fault.type_name
    if fault.kind == "timeout":
        return outcome.end == "late"
    if fault.kind == "corrupt":  # in a replay, the env overwrites memory of the replay's process, which may die or hang
        return outcome.end in ("died", "late")
    return outcome.end == "died" and outcome.exitcode == fault.exitcode


def describe_outcome(plan: Plan, outcome: Outcome) -> str:
    message = f": {outcome.message}" if outcome.message else ""
    what = {
        "raised": f"the env raised {outcome.type_name}{message} in",
        "finished": "nothing failed: the env went on after",
        "late": "the env did not come back from",
        "died": f"the process died ({describe_exitcode(outcome.exitcode)}) in",
    }[outcome.end]
    return f"{what} {_describe_op(plan, outcome.reached)}"


def _describe_op(plan: Plan, index: int) -> str:
    if index < 0:
        return "the making of the env"
    op = plan[index]
    if isinstance(op, Step):
        return f"step {op.number}"
    later = sum(isinstance(other, Reset) for other in plan[index + 1 :])
    return "the reset of the last episode" if later == 0 else f"a reset, {later} before the last"


def list_reasons(record: CrashRecord, outcome: Outcome) -> list[str]:
    """Returns possible reasons why the outcome of a replay differs from the record, the likeliest first."""
    fault = record.fault
    reasons = {
        "it failed outside resets and steps, and the record has only these": fault.operation not in ("reset", "step"),
        "SIGKILL comes from outside: from the kernel, when memory runs out, or from another program": (
            fault.kind == "death" and fault.exitcode == _SIGKILLED
        ),
        "the env wrote to memory of the pool, which a replay does not have": fault.kind == "corrupt",
        "a replay checks only observations, not rewards, flags and infos": fault.kind == "exception",
        "the factory needs something that is not here: a file, a device, a variable of the environment": (
            outcome.reached < 0
        ),
        f"the program had called the env {record.calls} times: what that did is not recorded": record.calls > 0,
        "other envs of the same worker may have had a part in it: their memory, modules, np.random": (
            len(record.env_ids) > 1
        ),
        "the env may keep more from one episode to the next than its random state": not record.is_first_episode,
        "the env may draw from elsewhere than its np_random: the modules random and np.random, its spaces": True,
        "time, threads, devices, another program (a simulator) or other versions may have had a part in it": True,
    }
    return [reason for reason, may_be in reasons.items() if may_be]
