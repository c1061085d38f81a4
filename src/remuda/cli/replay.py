"""``remuda replay``: an env fails again, in a process of its own or under the debugger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from remuda._engine.record import Record
from remuda._engine.record_file import load_record
from remuda._replay.debug import debug
from remuda._replay.play import Assignment
from remuda._replay.player import replay as replay_apart
from remuda._replay.script import Extent, Script, extents, write_script
from remuda._replay.unseal import Leave, unseal
from remuda._replay.verdict import Verdict, describe_deed, judge
from remuda.errors import RecordError

REFUSED, NOT_REPRODUCED = 2, 3  # exit statuses


def replay(
    file: Annotated[Path, typer.Argument(help="A crash record, which a pool with record= has written.")],
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Load what is pickled in it. That can run any code: only for your own files."),
    ] = False,
    factory: Annotated[
        str | None, typer.Option(help="Build the env with this module:function, not with the recorded factory.")
    ] = None,
    pdb: Annotated[
        bool,
        typer.Option("--pdb", help="Debug: at the exception, or before the step in which the worker died or hung."),
    ] = False,
    until_step: Annotated[
        int | None, typer.Option(min=1, help="Stop before this step of the last episode; with --pdb, in the debugger.")
    ] = None,
    since_seed: Annotated[
        bool, typer.Option("--since-seed", help="Replay all since the last seeded reset, not the last episode alone.")
    ] = False,
) -> None:
    """Run the last episode of an env that failed again, and say whether it fails in the same way.

    Exit status: 0 it does, 2 nothing was run, 3 it does not.
    """
    console = Console(soft_wrap=True)
    leave = Leave(trust, factory)
    try:
        record = load_record(file.absolute())
        _show(console, record)
        if not leave.is_enough:
            console.print(_question(record))
            raise typer.Exit(REFUSED)
        scripts = [write_script(record, extent, until_step) for extent in _chosen(record, since_seed)]
        verdict = _debug(record, leave, scripts[0]) if pdb else _replay(console, record, leave, scripts, until_step)
    except (RecordError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(REFUSED) from None
    if verdict is not None:
        _tell(console, verdict)


def _chosen(record: Record, since_seed: bool) -> list[Extent]:
    possible = extents(record)
    if not since_seed:
        return possible
    if record.seeded_at is None:
        raise RecordError(f"{record.path} does not reach back to a reset with a seed: replay without --since-seed")
    return possible[-1:]


def _replay(
    console: Console, record: Record, leave: Leave, scripts: list[Script], until_step: int | None
) -> Verdict | None:
    """Tries the scripts one after another until one does it."""
    verdict = None
    for script in scripts:
        console.print(f"replaying {_extent(record, script)} ...")
        last = len(script.deeds) - 1
        assignment = Assignment(record.path, script.extent, leave, until_step)
        ending = replay_apart(assignment, record.fault, last)
        if script.is_cut and ending.finished:
            console.print(f"stopped before {describe_deed(script.deeds, last)}: nothing had failed")
            return None
        verdict = judge(record, script, ending)
        if verdict.reproduced:
            return verdict
    return verdict


def _debug(record: Record, leave: Leave, script: Script) -> Verdict | None:
    ending = debug(record, unseal(record, leave), script)
    return None if script.is_cut or record.fault.kind != "exception" else judge(record, script, ending)


# -- what is shown ---------------------------------------------------------------------------------------


def _show(console: Console, record: Record) -> None:
    console.print(_table(record))
    if record.fault.traceback:
        console.print("\n" + escape(record.fault.traceback))


def _table(record: Record) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    fault = record.fault
    episode = "before its first reset" if record.episode is None else f"episode {record.episode}, step {record.step}"
    begun = f"worker {record.worker} of {record.num_workers} ({record.backend}, pid {record.pid}), {record.when}"
    for name, text in (
        ("env", f"{record.env_id}, {begun}"),
        ("failed", f"{fault.kind} in {fault.operation}, {episode}"),
        ("because", fault.error),
        ("began", _begin(record)),
        ("actions", record.action_space),
        ("observations", record.observation_space),
        ("factory", record.factory + (f" ({record.spec_id})" if record.spec_id else "")),
        ("with", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
    ):
        if text:
            table.add_row(name, escape(text))
    return table


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
        f"\nNothing was run. A replay builds the env with the recorded factory, {escape(record.factory)}. That is "
        f"pickled code, as all of these are: {code}. Loading them can do anything that you can do. If you trust the "
        "file:\n"
        f"  remuda replay --trust {escape(str(record.path))}\n"
        "Else name a factory of your own: --factory module:function"
    )


def _extent(record: Record, script: Script) -> str:
    steps = f"{len(script.deeds) - script.is_cut} calls"
    if script.extent == "history":
        return f"all since the last reset with a seed ({steps})"
    return f"episode {record.episode} ({steps})"


def _tell(console: Console, verdict: Verdict) -> None:
    if verdict.traceback:
        console.print(escape(verdict.traceback.rstrip()))
    if verdict.reproduced:
        console.print(f"[green]reproduced[/]: {escape(verdict.text)}")
        return
    console.print(f"[red]not reproduced[/]: {escape(verdict.text)}")
    console.print("This may be because")
    for reason in verdict.reasons:
        console.print(f"  - {escape(reason)}")
    raise typer.Exit(NOT_REPRODUCED)
