"""``remuda bench``: one env on remuda and its peers, side by side in one run."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from remuda._bench import registry, report, workloads
from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Result
from remuda._bench.rounds import Progress, race
from remuda._engine.cores import usable_cores

_PLOT_FORMATS = (".png", ".svg")


Backend: TypeAlias = Literal["process", "thread", "serial"]
StartMethod: TypeAlias = Literal["forkserver", "spawn", "fork"]


def bench(
    env: Annotated[str, typer.Argument(help="A Gymnasium id, or module:factory.")],
    num_envs: Annotated[int, typer.Option("--num-envs", "-n", min=1, help="Envs in a batch.")] = 8,
    num_workers: Annotated[
        int | None,
        typer.Option("--num-workers", "-w", min=1, help="remuda's workers; if not given, one per core."),
    ] = None,
    against: Annotated[str, typer.Option(help=f"Peers, comma-separated: {', '.join(registry.PEERS)}.")] = "gymnasium",
    seconds: Annotated[float, typer.Option(min=0.01, help="Time each contender gets in all.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds to divide it over.")] = 5,
    backend: Annotated[Backend, typer.Option(help="remuda's backend.")] = "process",
    start_method: Annotated[
        StartMethod | None,
        typer.Option(help="For every contender that lets one choose; each one's own if not given."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the envs and the actions.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them here, as .png or .svg.")] = None,
) -> None:
    """Step an env on remuda, on the named peers and in a plain loop, and compare.

    All are built first, then take turns in interleaved rounds. The ideal is the plain loop's rate, measured
    in the same rounds, times the cores this process may use.
    """
    workers = num_workers or min(num_envs, usable_cores())
    if workers > num_envs:
        raise _refusal(f"expected at most one worker per env, got {workers} workers for {num_envs} envs")
    for path in (json_file, plot):
        _check_output(path)
    _check_plot(plot)

    try:
        kinds = registry.line_up(filter(None, against.split(",")))
        workload = workloads.resolve(env)
        plan = Plan(workload, num_envs, workers, backend, start_method, seed)
        result = _run(kinds, plan, seconds, rounds)
    except (registry.UnavailableError, workloads.WorkloadError) as error:
        raise _refusal(str(error)) from None

    Console().print(report.render(result))
    _save(result, json_file, plot)
    if result.remuda.error is not None:
        raise typer.Exit(1)


def _run(kinds: list[type[Contender]], plan: Plan, seconds: float, rounds: int) -> Result:
    """The race, shown live on standard error, which leaves standard output to the final table."""
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        return race(kinds, plan, seconds=seconds, rounds=rounds, on_progress=_Display(live).show)


class _Display:
    """The table so far and a bar, redrawn between turns.

    It is redrawn by hand: a thread that refreshes it would disturb the measurement, and forking beside a
    running thread is unsafe.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._bar = ProgressBar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), auto_refresh=False)
        self._task = self._bar.add_task("")

    def show(self, progress: Progress) -> None:
        self._bar.update(self._task, description=progress.doing, completed=progress.done, total=progress.total)
        self._live.update(Group(report.render(progress.result), self._bar), refresh=True)


def _check_output(path: Path | None) -> None:
    """Find out now, not after the measurement, that a file cannot be written."""
    if path is None:
        return
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise _refusal(f"cannot write {path}: {folder} is not a folder that can be written to")


def _check_plot(path: Path | None) -> None:
    if path is not None and path.suffix not in _PLOT_FORMATS:
        raise _refusal(f"expected a plot file ending in {' or '.join(_PLOT_FORMATS)}, got {path}")
    if path is not None and importlib.util.find_spec("matplotlib") is None:
        raise _refusal('--plot needs matplotlib: pip install "remuda[bench]"')


def _save(result: Result, json_file: Path | None, plot_file: Path | None) -> None:
    for path in (json_file, plot_file):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_json(result), indent=2) + "\n")
    if plot_file is not None:
        from remuda._bench import plot  # only now: forked workers need not carry matplotlib

        plot.save(result, plot_file)


def _refusal(message: str) -> typer.Exit:
    """Say on one line why nothing was run; the exit status is 2."""
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(2)
