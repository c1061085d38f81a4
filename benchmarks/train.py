"""Measures whole trainings with PPO on every contender, and the share of the time that the update takes.

Our own PPO (`harness/ppo.py`) collects from each contender as its authors mean it to be used, halves in turns.
Stable-Baselines3's PPO collects from its own vector envs, from ours, and from the others in lockstep. A turn is one
iteration at least: collecting from all envs, and learning. `requirements.txt` in this folder lists all contenders.

The whole run takes about an hour; ``--quick`` is a rough look (shorter rollouts); ``--only``, ``--num-envs`` and
``--trainers`` choose a part.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from harness.envs import WORKLOADS, missing
from harness.options import names, parse_options
from harness.session import Session
from harness.tables import Block, conditions, failures, parent_us, table
from peers import PEERS, available
from peers.plain import IdealLoops

from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.picture import save_picture
from remuda._bench.results import Entry, Result, paired_ratio
from remuda._bench.workloads import Workload
from remuda._system.cores import usable_cores

try:
    import torch
    from harness import ppo
    from harness.trainers import OwnPpo, Sb3Ppo, Trainer, trained
except ModuleNotFoundError as error:
    sys.exit(f'{error}: pip install "torch==2.13.0", or all of benchmarks/requirements.txt')

SETTINGS = {"cartpole": ppo.Settings(), "mujoco": ppo.MUJOCO, "pong": ppo.ATARI}
QUICK_STEPS = {"cartpole": 32, "mujoco": 32, "pong": 8}
NUM_ENVS = ("8", "64")
TRAINERS: dict[str, type[Trainer]] = {"own": OwnPpo, "sb3": Sb3Ppo}
TITLES = {"own": "our own PPO", "sb3": "Stable-Baselines3's PPO"}
BASE = {"own": "gymnasium-sync", "sb3": "sb3-dummy"}
"""The plain vector env, in one process, to which each trainer's contenders are compared."""
AGAINST = {
    "own": (
        *("remuda-gymnasium", "remuda-gymnasium-1-per-env", "remuda-gymnasium-1", "remuda-gymnasium-auto"),
        *("remuda-gymnasium-split", "remuda-split", "gymnasium-sync", "gymnasium", "tianshou"),
        *("pufferlib", "pufferlib-1", "torchrl", "ding-sync", "remuda-ding", "envpool", "ale-vector"),
    ),
    "sb3": (
        *("remuda-sb3", "remuda-sb3-1-per-env", "remuda-sb3-auto", "sb3-dummy", "sb3", "gymnasium-sync"),
        "remuda-gymnasium",
    ),
}
SLOW_TO_START = "sb3"
"""The contender that is slow to start, because each of its workers imports PyTorch."""


@dataclass(frozen=True)
class Case:
    """A workload with a number of envs, and the trainer with its settings."""

    workload: str
    num_envs: int
    trainer: str
    settings: ppo.Settings


@dataclass(frozen=True)
class Training:
    """The result of racing trainings on a case, and the share of each contender's time that was spent on learning."""

    case: Case
    result: Result
    learning_shares: dict[str, float]


def main() -> None:
    options = parse_options(
        __doc__, workloads=SETTINGS, peers=PEERS, seconds=10.0, quick=0.5, rounds=5, more=add_options
    )
    torch.set_num_threads(options.torch_threads)
    session = Session(options)
    session.leave_out(map(missing, options.only))
    found = [training for _, training in session.measured(choose(options), lambda case: run(case, session))]
    if options.plots is not None:
        draw(found, options.plots, session.warnings())
    session.publish("train", markdown(found), map(to_json, found))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-envs", type=names, help=f"(default: {','.join(NUM_ENVS)})")
    parser.add_argument("--trainers", type=names, default=list(TRAINERS), help=f"of {', '.join(TRAINERS)}")
    parser.add_argument("--torch-threads", type=int, default=1, help="for one operation (default: 1)")
    parser.add_argument("--plots", type=Path, help="draw each case into this folder")


def choose(options: argparse.Namespace) -> Iterator[Case]:
    """Yields the cases of the options. ``--quick`` shortens rollouts and, without ``--num-envs``, omits some cases."""
    for workload in (name for name in options.only if missing(name) is None):
        for num_envs in map(int, options.num_envs or NUM_ENVS):
            for trainer in options.trainers:
                case = Case(workload, num_envs, trainer, SETTINGS[workload])
                if not options.is_quick:
                    yield case
                elif options.num_envs or is_quick(case):
                    yield replace(case, settings=replace(case.settings, num_steps=QUICK_STEPS[workload]))


def is_quick(case: Case) -> bool:
    """Returns whether ``--quick`` includes the case.

    With SB3's PPO: at most 8 CartPoles. With our own: any number of CartPoles, or at most 8 other envs.
    """
    if case.trainer == "sb3":
        return case.workload == "cartpole" and case.num_envs <= 8
    return case.workload == "cartpole" or case.num_envs <= 8


def contenders(case: Case, options: argparse.Namespace) -> Sequence[str]:
    """Returns the contenders of a case. With ``--quick`` and many envs, omits the one that takes minutes to start."""
    is_long = options.is_quick and case.num_envs > 8
    return [name for name in AGAINST[case.trainer] if not (is_long and name == SLOW_TO_START)]


def run(case: Case, session: Session) -> Training:
    workload = WORKLOADS[case.workload]()
    chosen = session.options.against or contenders(case, session.options)
    kinds, left_out = available(chosen, PEERS, workload)
    session.leave_out(left_out)
    return measure(case, workload, kinds, session)


def measure(case: Case, workload: Workload, kinds: Sequence[type[Contender]], session: Session) -> Training:
    plan = Plan(workload, case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    raced: list[type[Contender]] = [Remuda, *kinds]
    learning = [trained(kind, TRAINERS[case.trainer], case.settings) for kind in raced]
    result = session.race([PlainLoop, *learning, IdealLoops], plan)
    return Training(case, result, {kind.name: kind.learning_share() for kind in learning if kind.seconds["all"]})


# -- the tables ---------------------------------------------------------------------------------------------


def markdown(found: Sequence[Training]) -> Iterator[Block]:
    """Yields a table for each case, with a row for each contender."""
    for training in found:
        case, result = training.case, training.result
        yield (
            f"**{result.env}, {case.num_envs} envs, {TITLES[case.trainer]}, "
            f"{case.settings.num_steps} steps an iteration**"
        )
        base = BASE[case.trainer]
        columns = ["", "steps/s", "min-max", f"x {base}", f"of {result.cores} x a loop", f"of {IdealLoops.name}"]
        columns += ["update", "parent's CPU, us a batch"]
        yield table(columns, (row(training, entry) for entry in learners(result)))
    for training in found[:1]:
        yield (
            f"{conditions(training.result.rounds, training.result.seconds)} One iteration at least. update: its "
            "share of the time, whatever the envs do. The parent's CPU has policy and update in it, which are the same "
            "for all."
        )
    yield from failures(training.result for training in found)


def row(training: Training, entry: Entry) -> list[str]:
    if entry.error is not None or not entry.turns:
        return [entry.name, "failed", *[""] * 6]
    case, result, parent = training.case, training.result, parent_us_a_step(training.case, entry)
    of_base, of_loops = (ratio_to(result, entry, name) for name in (BASE[case.trainer], IdealLoops.name))
    ratios = [of_base, result.ratio_to_ideal(entry), of_loops]
    rates = [f"{median(entry.rates):,.0f}", f"{min(entry.rates):,.0f}-{max(entry.rates):,.0f}"]
    share = f"{training.learning_shares[entry.name]:.0%}"
    return [entry.name, *rates, *map(report.ratio, ratios), share, "" if parent is None else f"{parent:,.0f}"]


def learners(result: Result) -> list[Entry]:
    return [entry for entry in result.entries[1:] if entry.name != IdealLoops.name]


def ratio_to(result: Result, entry: Entry, name: str) -> float | None:
    """Returns the ratio of a contender's speed to that of the contender ``name``. None if ``name`` was not raced."""
    base = result.entry(name)
    return None if base is None else paired_ratio(entry, base)


def parent_us_a_step(case: Case, entry: Entry) -> float | None:
    """Returns the CPU time of the learner's process for a step of all envs, the policy and a share of the update."""
    each = parent_us(entry)
    return None if each is None else each / case.settings.num_steps


def draw(found: Iterable[Training], folder: Path, warnings: Sequence[str]) -> None:
    """Draws a picture of each training, with the warnings below its title."""
    folder.mkdir(parents=True, exist_ok=True)
    for training in found:
        case, result = training.case, training.result
        path = folder / f"train-{case.workload}-{case.num_envs}-{case.trainer}.png"
        save_picture(result, "\n".join([result.env, *(textwrap.fill(one, 70) for one in warnings)]), path)


def to_json(training: Training) -> dict[str, Any]:
    """Adds the trainer and the figures of training to the dict of `report.to_json`."""
    case, result = training.case, training.result
    figures = {
        entry.name: {
            "of_ideal_loops": ratio_to(result, entry, IdealLoops.name),
            "update_share": training.learning_shares.get(entry.name),
            "parent_us_a_batch": parent_us_a_step(case, entry),
        }
        for entry in learners(result)
    }
    more = {"trainer": case.trainer, "num_steps": case.settings.num_steps, "training": figures}
    return {**report.to_json(result), **more}


if __name__ == "__main__":
    main()
