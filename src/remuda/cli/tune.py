"""``remuda tune``: finds the best pool for an env and a policy."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from remuda._bench import tune_report, workloads
from remuda._bench.report import plural
from remuda._bench.trials import Policy, Trials
from remuda._bench.tuning import Outcome, Trial, Tuned, tune
from remuda._reports import terminal
from remuda._system.cores import usable_cores
from remuda.errors import RemudaError

from .bench import reason_not_to_write, save
from .display import display
from .options import add_subcommand, at_least, refuse

if TYPE_CHECKING:
    from .options import Subcommands

_USUAL_TRIALS = 10


def add_to(subcommands: Subcommands) -> None:
    """Describe the subcommand's options."""
    parser = add_subcommand(subcommands, tune_env, "tune")
    add = parser.add_argument
    add("env", help="a Gymnasium id, or module:factory")
    add("--policy-ms", type=at_least(0.0, float), default=0.0, metavar="MS", help="time of a policy call (default: 0)")
    add("--gpu", action="store_true", help="the policy runs on a GPU and needs no core meanwhile")
    add("--num-envs", "-n", type=at_least(1), metavar="N", help="envs in a batch (default: the best number)")
    add("--seconds", type=at_least(0.01, float), default=1.0, metavar="S", help="seconds of each trial (default: 1)")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--plot", type=Path, metavar="FILE", help="draw the figures, as .png or .svg")
    add("--html", type=Path, metavar="FILE", help="write a page with code to paste, plot, table and machine")


def tune_env(options: argparse.Namespace) -> int:
    """Try an env in pools with different options, and report which to use.

    Each trial steps a pool of the env with random actions, and a substitute that takes as long as your policy.
    It tries numbers of envs, workers and spares, and halves, each starting from the best so far; "auto" is first.
    """
    if reason := reason_not_to_write(options):
        return refuse(reason)
    try:
        workload = workloads.resolve(options.env)
        workloads.probe_spaces(workload)
    except workloads.WorkloadError as error:
        return refuse(str(error))
    trials = Trials(workload.make_env, Policy(options.policy_ms / 1e3, options.gpu), options.seconds)
    try:
        tuned = _tune(trials, options)
    except RemudaError as error:
        print(f"error: {options.env} cannot be stepped at random: {_first(error)}", file=sys.stderr)
        return 1
    report = tune_report.report_on(tuned, options.env)
    terminal.show(report)
    save(report, tune_report.to_json(tuned, options.env), options)
    return 0


def _tune(trials: Trials, options: argparse.Namespace) -> Tuned:
    """Searches for the best pool, and shows the current trial and the best one so far on standard error."""
    outcomes: list[Outcome] = []
    with display() as show_progress:

        def measure(trial: Trial) -> Outcome:
            workers = "workers by auto" if trial.num_workers is None else plural(trial.num_workers, "worker")
            best = max(outcomes, key=lambda outcome: outcome.rate, default=None)
            so_far = None if best is None else tune_report.report_on(Tuned(best, tuple(outcomes), ()), options.env)
            total = max(_USUAL_TRIALS, len(outcomes) + 1)
            show_progress(f"{plural(trial.num_envs, 'env')}, {workers}", len(outcomes), total, so_far)
            outcomes.append(trials.measure(trial))
            return outcomes[-1]

        return tune(measure, num_envs=options.num_envs, cores=usable_cores(), thinks=options.policy_ms > 0)


def _first(error: BaseException) -> BaseException:
    """Returns the error that was raised first, because a later one may only be about closing the pool."""
    while isinstance(error.__context__, RemudaError):
        error = error.__context__
    return error
