"""``remuda bench``: races an env on remuda, on other libraries and in a plain loop, side by side."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda._bench import report, workloads
from remuda._bench.contenders import PEERS, Contender, Plan, UnavailableError, line_up
from remuda._bench.picture import save_picture
from remuda._bench.race import race
from remuda._system.cores import usable_cores
from remuda._system.directories import writable_file
from remuda._system.machine import backend_here, is_installed

from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from remuda._bench.results import Result

    from .options import Subcommands

ROUNDS = 5
_PLOT_FORMATS = (".png", ".svg")


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, bench, "bench")
    add = parser.add_argument
    peers = ",".join(PEERS)
    add("env", help="a Gymnasium id, or module:factory")
    add("--num-envs", "-n", type=at_least(1), default=8, metavar="N", help="envs in a batch (default: 8)")
    add("--num-workers", "-w", type=at_least(1), metavar="N", help="remuda's workers (default: one per core)")
    add("--against", metavar="PEERS", help=f"of {peers}, with commas (default: those that are installed)")
    add("--seconds", type=at_least(0.01, float), default=3.0, metavar="S", help="seconds for each contender")
    add(
        "--backend", choices=("process", "thread", "serial"), default=backend_here(warns=False), help="remuda's backend"
    )
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--plot", type=Path, metavar="FILE", help="draw the figures, as .png or .svg")


def bench(options: argparse.Namespace) -> int:
    """Step an env on remuda, on Gymnasium, on Stable-Baselines3 and in a plain loop, and compare.

    All are built first, then take turns in interleaved rounds. The ideal is the plain loop's rate, measured in the same
    rounds, times the cores this process may use.
    """
    workers = options.num_workers or min(options.num_envs, usable_cores())
    if reason := _reason_not_to(options, workers):
        return refuse(reason)
    names = [name for name, peer in PEERS.items() if peer.is_installed()]
    try:
        kinds = line_up(names if options.against is None else filter(None, options.against.split(",")))
        plan = Plan(workloads.resolve(options.env), options.num_envs, workers, options.backend)
        result = race_and_show(kinds, plan, options.seconds)
    except (UnavailableError, workloads.WorkloadError) as error:
        return refuse(str(error))
    if options.json is not None:
        options.json.write_text(json.dumps(report.to_json(result), indent=2) + "\n")
    if options.plot is not None:
        save_picture(result, f"remuda bench {options.env}", options.plot)
    return 0 if result.remuda.error is None else 1


def _reason_not_to(options: argparse.Namespace, workers: int) -> str | None:
    """Returns the reason why the race cannot be run or saved; None if it can. Called before the measurement."""
    if workers > options.num_envs:
        return f"expected at most one worker per env, got {workers} workers for {options.num_envs} envs"
    for name in ("json", "plot"):
        if (path := getattr(options, name)) is not None:
            try:
                writable_file(path, f"--{name}")
            except OSError as error:
                return f"cannot write {path}: {error}"
    if options.plot is not None and options.plot.suffix not in _PLOT_FORMATS:
        return f"expected a plot file ending in {' or '.join(_PLOT_FORMATS)}, got {options.plot}"
    if options.plot is not None and not is_installed("matplotlib"):
        return "--plot needs matplotlib: pip install matplotlib"
    return None


def race_and_show(kinds: list[type[Contender]], plan: Plan, seconds: float) -> Result:
    """Races the contenders. Prints the progress on standard error, and the report on standard output."""
    on_progress = functools.partial(print, file=sys.stderr, flush=True)
    result = race(kinds, plan, seconds=seconds, rounds=ROUNDS, on_progress=on_progress)
    print(report.report_on(result))
    return result
