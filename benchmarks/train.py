"""Whole trainings, end to end: PPO on every contender, and which share of the time is the update.

Our own PPO (`ppo.py`) collects from each contender as that is meant to be used, halves in turns; Stable-Baselines3's
from its own vector envs, from ours, and from the others in lockstep. A turn is one iteration at least: collecting from
all envs, and learning. What is not installed is skipped and named; `requirements.txt` beside this has them all.

All of it takes about an hour; ``--quick`` is a rough look (shorter rollouts); ``--only``, ``--num-envs`` and
``--trainers`` choose a part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from envs import missing, workloads
from peers import PEERS
from script import names, parse_options, publish
from tables import failures, head, row

from remuda._bench import registry, report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.loops import LoopsAtOnce
from remuda._bench.results import Entry, Result, paired_ratio
from remuda._bench.rounds import race
from remuda._bench.workloads import Workload
from remuda._reports.charts import save_picture
from remuda._system import machine
from remuda._system.cores import usable_cores

try:
    import ppo
    from trainers import OwnPpo, Sb3Ppo, Trainer, trained, use_threads
except ModuleNotFoundError as error:
    sys.exit(f'{error}: pip install "torch==2.13.0", or all of benchmarks/requirements.txt')

SETTINGS = {"cartpole": ppo.Settings(), "mujoco": ppo.MUJOCO, "pong": ppo.ATARI}
QUICK_STEPS = {"cartpole": 32, "mujoco": 32, "pong": 8}
NUM_ENVS = ("8", "64")
TRAINERS: dict[str, type[Trainer]] = {"own": OwnPpo, "sb3": Sb3Ppo}
BASE = {"own": "gymnasium-sync", "sb3": "sb3-dummy"}
"""The loop in one process that each would run otherwise."""
AGAINST = {
    "own": (
        *("remuda-gymnasium", "remuda-gymnasium-per-env", "remuda-gymnasium-1", "remuda-gymnasium-auto"),
        *("remuda-gymnasium-split", "remuda-split", "gymnasium-sync", "gymnasium", "tianshou", "pufferlib"),
        *("supersuit", "torchrl", "torchrl-async", "ding-sync", "remuda-ding", "envpool", "ale-vector"),
    ),
    "sb3": (
        "remuda-sb3",
        "remuda-sb3-per-env",
        "remuda-sb3-auto",
        "sb3-dummy",
        "sb3",
        "gymnasium-sync",
        "remuda-gymnasium",
    ),
}
SLOW_TO_START = ("torchrl-async", "sb3")
"""Each of their workers imports PyTorch."""


@dataclass(frozen=True)
class Case:
    """A trainer on so many envs of a workload."""

    workload: str
    num_envs: int
    trainer: str
    settings: ppo.Settings


def main() -> None:
    options = parse_options(
        __doc__,
        workloads=list(SETTINGS),
        peers=PEERS,
        against=(),
        seconds=10.0,
        quick=0.5,
        more=add_options,
    )
    use_threads(options.torch_threads)
    reasons = [reason for reason in map(missing, options.only) if reason is not None]
    cases = list(choose(options))
    loads = workloads({case.workload for case in cases})
    results = []
    for case in cases:
        print(f"{case.workload}, {case.num_envs} envs, {case.trainer} ...", file=sys.stderr, flush=True)
        kinds, left_out = registry.available(options.against or contenders(case, options), PEERS, loads[case.workload])
        reasons += left_out
        results.append(measure(case, loads[case.workload], kinds, options))
    if options.plots is not None:
        draw(cases, results, options.plots)
    figures = (to_json(case, result) for case, result in zip(cases, results, strict=True))
    publish("train", markdown(cases, results, dict.fromkeys(reasons)), figures, options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-envs", type=names, help=f"(default: {','.join(NUM_ENVS)})")
    parser.add_argument("--trainers", type=names, default=list(TRAINERS), help=f"of {', '.join(TRAINERS)}")
    parser.add_argument("--torch-threads", type=int, default=1, help="for one operation (default: 1)")
    parser.add_argument("--plots", type=Path, help="draw each case into this folder")


def choose(options: argparse.Namespace) -> Iterator[Case]:
    """``--quick``: shorter rollouts; 64 envs of CartPole alone, and Stable-Baselines3's PPO on 8 of those."""
    for workload in (name for name in options.only if missing(name) is None):
        for num_envs in map(int, options.num_envs or NUM_ENVS):
            for trainer in options.trainers:
                settings = SETTINGS[workload]
                if options.is_quick:
                    settings = replace(settings, num_steps=QUICK_STEPS[workload])
                    if not options.num_envs and (num_envs > 8 or trainer == "sb3") and workload != "cartpole":
                        continue
                    if not options.num_envs and num_envs > 8 and trainer == "sb3":
                        continue
                yield Case(workload, num_envs, trainer, settings)


def contenders(case: Case, options: argparse.Namespace) -> list[str]:
    """``--quick``: with many envs, without those whose start takes minutes."""
    is_long = options.is_quick and case.num_envs > 8
    return [name for name in AGAINST[case.trainer] if not (is_long and name in SLOW_TO_START)]


def measure(case: Case, workload: Workload, kinds: Sequence[type[Contender]], options: argparse.Namespace) -> Result:
    plan = Plan(workload, case.num_envs, num_workers=min(case.num_envs, usable_cores()))
    learning = [trained(kind, TRAINERS[case.trainer], case.settings) for kind in (Remuda, *kinds)]
    return race([PlainLoop, *learning, LoopsAtOnce], plan, seconds=options.seconds, rounds=options.rounds)


# -- what is shown ------------------------------------------------------------------------------------------


def markdown(cases: Sequence[Case], results: Sequence[Result], left_out: Iterable[str]) -> Iterator[str]:
    """A table a case: one row a contender."""
    for case, result in zip(cases, results, strict=True):
        yield f"\n**{result.env}, {case.num_envs} envs, {title(case)}**\n"
        yield from table(case, result)
    yield ""
    if results:
        yield conditions(results[0])
    for reason in left_out:
        yield f"\nLeft out: {reason}"
    yield from failures(results)


def title(case: Case) -> str:
    whose = "our own PPO" if case.trainer == "own" else "Stable-Baselines3's PPO"
    return f"{whose}, {case.settings.num_steps} steps an iteration"


def table(case: Case, result: Result) -> Iterator[str]:
    base = result.entry(BASE[case.trainer])
    columns = ("steps/s", "min-max", f"x {BASE[case.trainer]}", f"of {result.loops} x a loop", "of loops at once")
    yield from head(["", *columns, "update", "parent's CPU, us a batch"])
    for entry in learners(result):
        if entry.error is not None or not entry.turns:
            yield row([entry.name, "failed", *[""] * 6])
            continue
        ratios = [None if base is None else paired_ratio(entry, base), result.ratio_to_ideal(entry)]
        ratios.append(of_loops_at_once(result, entry))
        rates = f"{min(entry.rates):,.0f}-{max(entry.rates):,.0f}"
        parent = parent_us(case, entry)
        share = f"{entry.learning_share:.0%}"
        cells = [f"{median(entry.rates):,.0f}", rates, *map(report.ratio, ratios), share]
        yield row([entry.name, *cells, "" if parent is None else f"{parent:,.0f}"])


def learners(result: Result) -> list[Entry]:
    return [entry for entry in result.entries[1:] if entry.name != LoopsAtOnce.name]


def of_loops_at_once(result: Result, entry: Entry) -> float | None:
    loops = result.entry(LoopsAtOnce.name)
    return None if loops is None else paired_ratio(entry, loops)


def parent_us(case: Case, entry: Entry) -> float | None:
    """CPU time of the learner's process for one step of all envs: policy, transport, and its share of the update."""
    each = entry.parent_us_a_batch
    return None if each is None else each / case.settings.num_steps


def conditions(result: Result) -> str:
    return (
        f"{machine.describe()}; {result.cores} cores. Medians of {result.rounds} interleaved rounds, "
        f"{result.seconds:g} s a contender and one iteration at least. update: its share of the time, whatever the "
        "envs do. The parent's CPU has policy and update in it, which are the same for all."
    )


def draw(cases: Sequence[Case], results: Sequence[Result], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for case, result in zip(cases, results, strict=True):
        path = folder / f"train-{case.workload}-{case.num_envs}-{case.trainer}.png"
        save_picture(report.chart(result), result.env, path)


def to_json(case: Case, result: Result) -> dict[str, Any]:
    """As `report.to_json`, and what training adds."""
    more = {
        entry.name: {
            "of_loops_at_once": of_loops_at_once(result, entry),
            "update_share": entry.learning_share if entry.turns else None,
            "parent_us_a_batch": parent_us(case, entry),
        }
        for entry in learners(result)
    }
    told = {"trainer": case.trainer, "num_steps": case.settings.num_steps, "training": more}
    return {**report.to_json(result), **told}


if __name__ == "__main__":
    main()
