"""Whether a replay did what the record says, and why perhaps not."""

from __future__ import annotations

import platform
import signal
from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium
import numpy as np

from remuda._crash.record import Record
from remuda._replay.outcome import Ending
from remuda._replay.plan import Deed, Reset, Script, Step
from remuda.errors import describe_exitcode


@dataclass(frozen=True)
class Verdict:
    """Attributes:
    reproduced: Whether the env failed in the same place in the same way.
    text: What it did.
    reasons: Where it was not reproduced: what the replay may lack.
    traceback: Of what it raised; else empty.
    """

    reproduced: bool
    text: str
    reasons: Sequence[str] = ()
    traceback: str = ""


def judge(record: Record, script: Script, ending: Ending) -> Verdict:
    text = f"{_what(ending)} {_where(script, ending)}"
    traceback = "" if ending.raised is None else ending.raised.traceback
    if ending.reached == len(script.deeds) - 1 and _is_the_same(record, ending):
        return Verdict(True, text, traceback=traceback)
    return Verdict(False, text, _reasons(record, script, ending), traceback)


def _is_the_same(record: Record, ending: Ending) -> bool:
    fault = record.fault
    if fault.kind == "exception":
        return ending.raised is not None and ending.raised.type_name == fault.type_name
    if fault.kind == "timeout":
        return ending.is_late
    died = not (ending.finished or ending.raised or ending.is_spoilt or ending.is_late)
    if fault.kind == "corrupt":  # in one process with what it writes over, that may kill it, or have no end
        return died or ending.is_spoilt or ending.is_late
    return died and ending.exitcode == fault.exitcode


def _what(ending: Ending) -> str:
    if ending.finished:
        return "nothing failed: the env went on after"
    if ending.is_late:
        return "the env did not come back from"
    if ending.is_spoilt:
        return "the env wrote over memory that is not its own in"
    if ending.raised is not None:
        message = f": {ending.raised.message}" if ending.raised.message else ""
        return f"the env raised {ending.raised.type_name}{message} in"
    return f"the process died ({describe_exitcode(ending.exitcode)}) in"


def _where(script: Script, ending: Ending) -> str:
    if ending.reached < 0:
        return "the making of the env"
    return describe_deed(script.deeds, ending.reached)


def describe_deed(deeds: Sequence[Deed], index: int) -> str:
    deed = deeds[index]
    if isinstance(deed, Step):
        return f"step {deed.number}"
    later = sum(isinstance(other, Reset) for other in deeds[index + 1 :])
    return "the reset of the last episode" if later == 0 else f"a reset, {later} before the last"


def _reasons(record: Record, script: Script, ending: Ending) -> list[str]:
    """What the replay may lack, the likeliest first."""
    reasons = []
    fault = record.fault
    if fault.operation in ("call", "nothing", "observe"):
        doing = {"call": "in a call", "observe": "while it was observed"}.get(fault.operation, "while it was idle")
        reasons.append(f"it failed {doing}, which is no part of the record: only what came before is replayed")
    if fault.exitcode == -signal.SIGKILL and fault.kind == "death":
        reasons.append("SIGKILL comes from outside: from the kernel, when memory runs out, or from somebody")
    if fault.kind == "corrupt":
        reasons.append("what the env wrote over was memory of the pool, which is not here")
    if ending.raised is not None and ending.raised.operation == "build":
        reasons.append("the factory needs something that is not here: a file, a device, a variable of the environment")
    if record.calls:
        reasons.append(f"the program had called the env {record.calls} times: what that did is not recorded")
    if len(record.env_ids) > 1:
        reasons.append("other envs of the same worker may have had a part in it: their memory, modules, np.random")
    if script.extent == "episode" and not record.is_first_episode:
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
