"""``remuda bench``: races one env on remuda and its peers, side by side in one run."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

from remuda._bench import registry, workloads
from remuda._bench.contenders import Contender, Plan
from remuda._system.cores import usable_cores
from remuda._system.directories import writable_file

from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from remuda._bench.results import Result

    from .options import Subcommands

_PLOT_FORMATS = (".png", ".svg")


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
    add("--seconds", type=at_least(0.01, float), default=3.0, metavar="S", help="time each contender gets in all")
    add("--rounds", type=at_least(1), default=5, metavar="N", help="interleaved rounds to divide it over (default: 5)")
    add("--backend", choices=("process", "thread", "serial"), default="process", help="remuda's backend")
    add(
        "--start-method",
        choices=("forkserver", "spawn", "fork"),
        help="for every contender that lets one choose (default: each one's own)",
    )
    add("--seed", type=int, default=0, metavar="N", help="of the envs and the actions (default: 0)")
    add("--json", type=Path, metavar="FILE", help="write all figures here")
    add("--plot", type=Path, metavar="FILE", help="draw them here, as .png or .svg")
    add("--html", type=Path, metavar="FILE", help="write a page of them here: plot, table, machine, command")


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
        result = run_race(kinds, plan, options.seconds, options.rounds)
    except (registry.UnavailableError, workloads.WorkloadError) as error:
        return refuse(str(error))

    save(result, options.json, options.plot, options.html, options.command)
    return 0 if result.remuda.error is None else 1


def _num_workers(options: argparse.Namespace) -> int:
    return int(options.num_workers or min(options.num_envs, usable_cores()))


def _reason_not_to(options: argparse.Namespace) -> str | None:
    """Found out now, not after the measurement."""
    if (workers := _num_workers(options)) > options.num_envs:
        return f"expected at most one worker per env, got {workers} workers for {options.num_envs} envs"
    return reason_not_to_write(options)


def reason_not_to_write(options: argparse.Namespace) -> str | None:
    """What keeps the results from being written where there is a name for a file."""
    plot: Path | None = options.plot
    for name in ("json", "plot", "html"):
        if (path := getattr(options, name)) is not None:
            try:
                writable_file(path, f"--{name}")
            except OSError as error:
                return f"cannot write {path}: {error}"
    if plot is not None and plot.suffix not in _PLOT_FORMATS:
        return f"expected a plot file ending in {' or '.join(_PLOT_FORMATS)}, got {plot}"
    if plot is not None and not is_installed("matplotlib"):
        return "--plot needs matplotlib: pip install matplotlib"
    return None


def run_race(kinds: list[type[Contender]], plan: Plan, seconds: float, rounds: int) -> Result:
    """Race them, with a live display where rich is installed."""
    if is_installed("rich"):
        from . import race

        return race.run_race(kinds, plan, seconds, rounds)
    from . import plain_race

    return plain_race.run_race(kinds, plan, seconds, rounds)


def is_installed(package: str) -> bool:
    """Whether a package that is not required is there."""
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # it is being kept away
        return False


def save(
    result: Result, json_file: Path | None, plot_file: Path | None, page_file: Path | None = None, command: str = ""
) -> None:
    """Write the figures, draw them, and make a page of them, where there is a name for a file."""
    if json_file is not None:
        from remuda._bench import report

        json_file.write_text(json.dumps(report.to_json(result), indent=2) + "\n")
    if plot_file is not None:
        from remuda._bench import plot  # only now: forked workers need not carry matplotlib

        plot.save(result, plot_file)
    if page_file is not None:
        from remuda._bench import page
        from remuda._reports.origin import Origin

        page.page(result, Origin.here(command)).save(page_file)
