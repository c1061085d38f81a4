"""``remuda replay``: runs a crash record again, in another process or under the debugger."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda._crash.file import load_record, printable
from remuda._crash.record import Record
from remuda._replay.debug import debug
from remuda._replay.diagnosis import Diagnosis, describe_op, judge
from remuda._replay.plan import Extent, Plan, extents, make_plan
from remuda._replay.recorded_code import Leave, RecordedCode
from remuda.errors import RecordError

from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from .options import Subcommands

REFUSED, NOT_REPRODUCED = 2, 3  # exit statuses


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, replay, "replay")
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a crash record, written by a pool with record=")
    add(
        "--trust",
        action="store_true",
        help="unpickle its contents, which can run any code: only for files that you trust",
    )
    add("--factory", metavar="MODULE:FUNCTION", help="build the env with this factory instead of the recorded one")
    add(
        "--pdb",
        action="store_true",
        help="debug: at the exception, or before the step in which the worker died or hung",
    )
    add(
        "--until-step",
        type=at_least(1),
        metavar="N",
        help="stop before this step of the last episode; with --pdb, in the debugger",
    )
    add(
        "--since-seed",
        action="store_true",
        help="replay all episodes since the last reset with a seed",
    )


def replay(options: argparse.Namespace) -> int:
    """Run the last episode of a failed env again, and report whether the env fails in the same way.

    Exit status: 0 if it does, 2 if nothing was run, 3 if it does not.
    """
    leave = Leave(options.trust, options.factory)
    try:
        record = load_record(options.file.absolute())
        _show(record)
        if not leave.is_enough:
            _say(_question(record))
            return REFUSED
        plans = [make_plan(record, extent, options.until_step) for extent in _chosen(record, options.since_seed)]
        if options.pdb:
            outcome = debug(record, RecordedCode(record, leave), plans[0])
            diagnosis = None if outcome is None else judge(record, plans[0], outcome)
        else:
            diagnosis = _replay(record, leave, plans)
    except (RecordError, OSError) as error:
        return refuse(printable(str(error)))
    return 0 if diagnosis is None else _tell(diagnosis)


def _chosen(record: Record, since_seed: bool) -> list[Extent]:
    possible = extents(record)
    if not since_seed:
        return possible
    if record.seeded_at is None:
        raise RecordError(f"{record.path} does not reach back to a reset with a seed: replay without --since-seed")
    return possible[-1:]


def _replay(record: Record, leave: Leave, plans: list[Plan]) -> Diagnosis | None:
    """Replays the record as each plan describes, until a plan reproduces the failure."""
    if sys.platform != "linux":
        raise RecordError(f"replaying in a process of its own needs Linux, got {sys.platform}: replay with --pdb")
    from remuda._replay.player import replay as replay_apart  # imported only on Linux

    diagnosis = None
    for plan in plans:
        _say(f"replaying {_extent(record, plan)} ...")
        outcome = replay_apart(record, plan, leave)
        if plan.is_cut and outcome.end == "finished":
            _say(f"stopped before {describe_op(plan.ops, len(plan.ops) - 1)}: nothing had failed")
            return None
        diagnosis = judge(record, plan, outcome)
        if diagnosis.reproduced:
            return diagnosis
    return diagnosis


# -- output ----------------------------------------------------------------------------------------------


def _show(record: Record) -> None:
    fault = record.fault
    episode = "before its first reset" if record.episode is None else f"episode {record.episode}, step {record.step}"
    begun = f"worker {record.worker} of {record.num_workers} ({record.backend}, pid {record.pid}), {record.when}"
    rows = (
        ("env", f"{record.env_id}, {begun}"),
        ("failed", f"{fault.kind} in {fault.operation}, {episode}"),
        ("because", fault.error),
        ("began", _begin(record)),
        ("actions", record.action_space),
        ("observations", record.observation_space),
        ("factory", record.factory + (f" ({record.spec_id})" if record.spec_id else "")),
        ("with", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
    )
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        if text:
            _say(f"{name:{width}}  " + text.replace("\n", "\n" + " " * (width + 2)))
    if fault.traceback:
        _say("\n" + fault.traceback)


def _begin(record: Record) -> str:
    beginning = record.beginning
    if beginning is None:
        return "it is not known how"
    known = [] if beginning.seed is None else [f"seed {beginning.seed}"]
    if beginning.options is not None or beginning.pickled_options is not None or beginning.options_lost:
        known.append("options" if not beginning.options_lost else f"options that are missing: {beginning.options_lost}")
    if beginning.seed is None:
        known.append(
            "its random state is recorded"
            if beginning.random is not None
            else f"random state unknown: {beginning.random_unknown}"
        )
    return ", ".join(known)


def _question(record: Record) -> str:
    code = ", ".join(sorted(record.pickles))
    return (
        f"\nNothing was run. A replay builds the env with the recorded factory, {record.factory}. That is "
        f"pickled code, as all of these are: {code}. Loading them can do anything that you can do. If you trust the "
        "file:\n"
        f"  remuda replay --trust {record.path}\n"
        "Else name a factory of your own: --factory module:function"
    )


def _extent(record: Record, plan: Plan) -> str:
    steps = f"{len(plan.ops) - plan.is_cut} calls"
    if plan.extent == "history":
        return f"all since the last reset with a seed ({steps})"
    return f"episode {record.episode} ({steps})"


def _tell(diagnosis: Diagnosis) -> int:
    if diagnosis.traceback:
        _say(diagnosis.traceback.rstrip())
    if diagnosis.reproduced:
        _say(f"reproduced: {diagnosis.text}")
        return 0
    _say(f"not reproduced: {diagnosis.text}\nThis may be because")
    for reason in diagnosis.reasons:
        _say(f"  - {reason}")
    return NOT_REPRODUCED


def _say(text: str) -> None:
    """Prints at once, because the replayed env may also print, or end this process.

    The file may come from another person: its control characters are escaped.
    """
    print(printable(text), flush=True)
