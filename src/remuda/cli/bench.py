"""``remuda bench``: races one env on remuda and its peers, side by side in one run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda._bench import registry, report, workloads
from remuda._bench.contenders import Contender, Plan
from remuda._bench.rounds import Progress, race
from remuda._reports import terminal
from remuda._reports.charts import save_picture
from remuda._reports.packages import is_installed
from remuda._system.cores import usable_cores
from remuda._system.directories import writable_file

from .display import display
from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from remuda._bench.results import Result
    from remuda._reports.report import Report

    from .options import Subcommands

_PLOT_FORMATS = (".png", ".svg")
_PACKAGES_OF = {"json": (), "plot": ("matplotlib",)}  # by option


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, bench, "bench")
    add = parser.add_argument
    add("env", help="a Gymnasium id, or module:factory")
    add("--num-envs", "-n", type=at_least(1), default=8, metavar="N", help="envs in a batch (default: 8)")
    add("--num-workers", "-w", type=at_least(1), metavar="N", help="remuda's workers (default: one per core)")
    add(
        "--against",
        default="gymnasium",
        metavar="PEERS",
        help=f"comma-separated, of {', '.join(registry.PEERS)} (default: gymnasium)",
    )
    add("--seconds", type=at_least(0.01, float), default=3.0, metavar="S", help="seconds for each contender")
    add("--rounds", type=at_least(1), default=5, metavar="N", help="interleaved rounds (default: 5)")
    add("--backend", choices=("process", "thread", "serial"), default="process", help="remuda's backend")
    add(
        "--start-method",
        choices=("forkserver", "spawn", "fork"),
        help="start method of contenders with a choice (default: their own)",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of the envs and the actions (default: 0)")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--plot", type=Path, metavar="FILE", help="draw the figures, as .png or .svg")


def bench(options: argparse.Namespace) -> int:
    """Step an env on remuda, on the named peers and in a plain loop, and compare.

    All are built first, then take turns in interleaved rounds. The ideal is the plain loop's rate, measured in the same
    rounds, times the cores this process may use.
    """
    if reason := _reason_not_to(options):
        return refuse(reason)
    try:
        kinds = registry.line_up(filter(None, options.against.split(",")))
        workload = workloads.resolve(options.env)
        plan = Plan(
            workload, options.num_envs, _num_workers(options), options.backend, options.start_method, options.seed
        )
        result = race_and_show(kinds, plan, options.seconds, options.rounds)
    except (registry.UnavailableError, workloads.WorkloadError) as error:
        return refuse(str(error))
    save(report.report_on(result), report.to_json(result), options)
    return 0 if result.remuda.error is None else 1


def _num_workers(options: argparse.Namespace) -> int:
    return int(options.num_workers or min(options.num_envs, usable_cores()))


def _reason_not_to(options: argparse.Namespace) -> str | None:
    """Returns the reason why the race cannot be run or saved; None if it can. Called before the measurement."""
    if (workers := _num_workers(options)) > options.num_envs:
        return f"expected at most one worker per env, got {workers} workers for {options.num_envs} envs"
    return reason_not_to_write(options)


def reason_not_to_write(options: argparse.Namespace) -> str | None:
    """Returns the reason why a file that an option names cannot be written; None if all can be."""
    for name in _PACKAGES_OF:
        if (path := getattr(options, name)) is not None:
            try:
                writable_file(path, f"--{name}")
            except OSError as error:
                return f"cannot write {path}: {error}"
    if options.plot is not None and options.plot.suffix not in _PLOT_FORMATS:
        return f"expected a plot file ending in {' or '.join(_PLOT_FORMATS)}, got {options.plot}"
    for name, packages in _PACKAGES_OF.items():
        if getattr(options, name) is not None and (missing := [one for one in packages if not is_installed(one)]):
            return f"--{name} needs {' and '.join(missing)}: pip install {' '.join(missing)}"
    return None


def race_and_show(kinds: list[type[Contender]], plan: Plan, seconds: float, rounds: int) -> Result:
    """Races the contenders. Shows the progress on standard error, and the report on standard output."""
    with display() as show_progress:

        def show_race(progress: Progress) -> None:
            show_progress(progress.doing, progress.done, progress.total, report.report_on(progress.result))

        result = race(kinds, plan, seconds=seconds, rounds=rounds, on_progress=show_race)
    terminal.show(report.report_on(result))
    return result


def save(found: Report, figures: dict[str, Any], options: argparse.Namespace) -> None:
    """Writes the figures and a picture to the files that the options name."""
    if options.json is not None:
        write_figures(figures, options.json)
    if options.plot is not None and found.chart is not None:
        save_picture(found.chart, found.title, options.plot)


def write_figures(figures: dict[str, Any], path: Path) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(figures, indent=2) + "\n")
