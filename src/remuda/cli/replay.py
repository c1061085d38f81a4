"""``remuda replay``: runs a crash record again, in another process or under the debugger."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from remuda._crash.file import load_record, printable
from remuda._crash.record import CrashRecord
from remuda._replay.apart import follow_apart
from remuda._replay.diagnosis import describe_outcome, is_reproduced, list_reasons
from remuda._replay.plan import Plan, cut_plan, make_plans
from remuda._replay.player import debug
from remuda._replay.recorded_code import RecordedCode
from remuda._replay.script import write_script
from remuda._system.directories import writable_file
from remuda.errors import RecordError

from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from .options import Subcommands

REFUSED, NOT_REPRODUCED = 2, 3  # exit statuses


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, replay, "replay")
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a crash record, written by a pool with crash_dir=")
    add("--trust", action="store_true", help="unpickle its contents, which can run any code: only for files you trust")
    add("--factory", metavar="MODULE:FUNCTION", help="build the env with this factory instead of the recorded one")
    add("--pdb", action="store_true", help="debug: at the exception, or before the call in which the worker failed")
    add("--script", type=Path, metavar="FILE", help="write the calls as a program without remuda; run none of them")
    add("--until-step", type=at_least(1), metavar="N", help="debug: before this step of the last episode")
    add("--since-seed", action="store_true", help="replay all episodes since the last reset with a seed")


def replay(options: argparse.Namespace) -> int:
    """Run the last episode of a failed env again, and report whether the env fails in the same way.

    Exit status: 0 if it does, if you have debugged it, or if the script was written, 2 if nothing was run, 3 if it does
    not.
    """
    try:
        record = load_record(options.file.absolute())
        _show(record)
        if not options.trust and options.factory is None:
            _say(
                f"\nNothing was run. The file has pickled code ({', '.join(sorted(record.pickles))}), which can do "
                f"anything that you can do. If you trust the file:\n  remuda replay --trust {record.path}\n"
                "Else name a factory of your own: --factory module:function"
            )
            return REFUSED
        code = RecordedCode(record, options.trust, options.factory)
        plans = make_plans(record, options.since_seed)
        if options.script is not None:
            return _write_script(code, plans[0], options.script.absolute())
        if not options.pdb and options.until_step is None:
            return _replay(code, plans)
        plan = plans[0] if options.until_step is None else cut_plan(plans[0], options.until_step)
        debug(plan, code, stops_before_last=len(plan) < len(plans[0]) or record.fault.kind != "exception")
    except (RecordError, OSError) as error:
        return refuse(printable(str(error)))
    return 0


def _write_script(code: RecordedCode, plan: Plan, path: Path) -> int:
    path = writable_file(path, "--script")  # before the env is built
    text = write_script(plan, code)
    path.write_text(text, encoding="utf-8")
    _say(f"wrote {len(plan)} calls to {path}")
    return 0


def _replay(code: RecordedCode, plans: list[Plan]) -> int:
    """Follows each plan, until one reproduces the failure. Returns the exit status."""
    for plan in plans:
        _say(f"replaying {len(plan)} calls ...")
        outcome = follow_apart(plan, code)
        if is_reproduced(code.record, plan, outcome):
            _say(f"{outcome.traceback}reproduced: {describe_outcome(plan, outcome)}")
            return 0
    reasons = "\n".join(f"  - {reason}" for reason in list_reasons(code.record, outcome))
    _say(f"{outcome.traceback}not reproduced: {describe_outcome(plan, outcome)}\nThis may be because\n{reasons}")
    return NOT_REPRODUCED


def _show(record: CrashRecord) -> None:
    fault = record.fault
    episode = "before its first reset" if record.episode is None else f"episode {record.episode}, step {record.step}"
    rows = {
        "env": f"{record.env_id}, worker {record.worker} of {record.num_workers} ({record.backend}), {record.when}",
        "failed": f"{fault.kind} in {fault.operation}, {episode}",
        "because": fault.error,
        "began": str(record.start),
        "actions": record.action_space,
        "observations": record.observation_space,
        "factory": record.factory + (f" ({record.spec_id})" if record.spec_id else ""),
        "with": ", ".join(f"{name} {version}" for name, version in record.versions.items()),
    }
    for name, text in rows.items():
        _say(f"{name:12}  " + text.replace("\n", "\n" + " " * 14))
    if fault.traceback:
        _say("\n" + fault.traceback)


def _say(text: str) -> None:
    """Prints at once, because the replayed env may also print, or end this process.

    The file may come from another person: its control characters are escaped.
    """
    print(printable(text), flush=True)
