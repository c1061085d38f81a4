"""From one worker to as many as there are cores, and to more by a model of how the parent limits a pool.

First what is measured: env steps per second of a pool by its number of workers, beside as many plain loops at once, and
of several parents that share the envs. Then the model (`scaling_model.py`), fitted to the parent's CPU time a batch,
which does not depend on how many cores there are, and what it says of machines with more. Workers are where the kernel
puts them: nothing here knows of NUMA.

All of it takes about ten minutes on two cores; ``--quick`` is a rough look, ``--only pong`` a part.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import scaling_model as model
from envs import VECTOR, FixedEnv, missing, workloads
from scaling_model import Parent, Sample
from script import parse_options, publish
from tables import failures, head, row

import remuda
from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.loops import LoopsAtOnce
from remuda._bench.results import Result, paired_ratio
from remuda._bench.rounds import race
from remuda._bench.workloads import EnvFactory, Workload, sample_actions
from remuda._system import machine
from remuda._system.cores import usable_cores

WORKLOADS = ("cartpole", "mujoco", "pong")
NUM_ENVS = model.NUM_ENVS
FITTED = tuple((num_envs, workers) for num_envs in (16, 64, 128) for workers in (1, 2, 8, 16))
"""Sizes at which the parent's CPU time is taken; it counts no waiting, so there may be more workers than cores."""


class SeveralParents(Contender):
    """Processes, each with a pool of its own: a share of the envs, and of the workers, for each.

    Every one steps its pool for a while and says how often; so there is no lockstep between them.
    """

    name = "several parents"
    module = package = "remuda"
    counts_steps = True
    num_parents = 2

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        count = min(self.num_parents, plan.num_workers)
        shares = [(plan.num_envs // count, max(1, plan.num_workers // count))] * count
        self._parents = remuda.Pool([functools.partial(FixedEnv, VECTOR)] * count, num_workers=None, advise=False)
        each = [(plan.workload.make_env, *share, plan.seed) for share in shares]
        self._parents.apply_async(_open, per_env_args=each).result()

    def reset(self, seed: int) -> None: ...

    def step(self, actions: Any) -> int:
        return sum(self._parents.apply(_step_for, 0.05))

    def close(self) -> None:
        self._parents.close()

    def worker_pids(self) -> list[int]:
        own = [worker.pid for worker in self._parents.workers if worker.pid is not None]
        return own + [pid for pids in self._parents.get_attr("worker_pids") for pid in pids]


def _open(env: Any, make_env: EnvFactory, num_envs: int, num_workers: int, seed: int) -> None:
    """Runs in a parent, beside an env that nobody steps: it keeps the pool, and closes it when it is closed."""
    env.pool = pool = remuda.Pool([make_env] * num_envs, num_workers=num_workers, advise=False)
    env.worker_pids = [worker.pid for worker in pool.workers]
    env.close = pool.close
    pool.reset(seed=seed)
    env.actions = sample_actions(pool.single_action_space, num_envs, 1, seed).batches[0]


def _step_for(env: Any, seconds: float) -> int:
    """Runs in a parent; how many env steps it has made."""
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        steps += len(env.pool.step(env.actions))
    return steps


@dataclass(frozen=True)
class Scaling:
    """What was measured of a workload: a result for each number of workers."""

    workload: str
    results: dict[int, Result]


def main() -> None:
    options = parse_options(
        __doc__, workloads=WORKLOADS, peers=(), against=(), seconds=5.0, quick=0.5, more=add_options
    )
    for reason in filter(None, map(missing, options.only)):
        print(reason, file=sys.stderr)
    loads = workloads({name for name in (*options.only, "null") if missing(name) is None})
    scalings = [measure(name, load, options) for name, load in loads.items() if name != "null"]
    sizes = FITTED if not options.is_quick else FITTED[::3] + FITTED[1::3]
    samples = [sample(loads["null"], *size, options) for size in sizes]
    parent = model.fit(samples)
    figures = [to_json(scaling) for scaling in scalings]
    fitted = {"parent": vars(parent), "samples": [vars(one) for one in samples]}
    publish("scaling", markdown(scalings, samples, parent), [*figures, fitted], options)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most", type=int, default=usable_cores(), help="workers (default: as many as cores)")


def counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... up to so many, and that number itself."""
    some = sorted({1, most, *(base * 2**power for base in (2, 3) for power in range(8))})
    return [count for count in some if count <= min(most, NUM_ENVS)]


def measure(name: str, workload: Workload, options: argparse.Namespace) -> Scaling:
    results = {}
    for count in counts(options.most):
        print(f"{name}, {count} workers ...", file=sys.stderr, flush=True)
        kinds: list[type[Contender]] = [PlainLoop, Remuda, LoopsAtOnce, *([SeveralParents] if count > 1 else [])]
        plan = Plan(workload, NUM_ENVS, count, loops=count)
        results[count] = race(kinds, plan, seconds=options.seconds, rounds=options.rounds)
    return Scaling(name, results)


def sample(workload: Workload, num_envs: int, num_workers: int, options: argparse.Namespace) -> Sample:
    """Of envs that return at once, so that what is measured is what the parent does."""
    print(f"{num_envs} envs that return at once, {num_workers} workers ...", file=sys.stderr, flush=True)
    plan = Plan(workload, num_envs, num_workers)
    entry = race([PlainLoop, Remuda], plan, seconds=options.seconds / 2, rounds=options.rounds).remuda
    if entry.error is not None or entry.parent_us_a_batch is None or entry.steps_per_second is None:
        raise SystemExit(f"{num_envs} envs, {num_workers} workers: {entry.error}")
    return Sample(num_envs, num_workers, entry.parent_us_a_batch, 1e6 * num_envs / entry.steps_per_second)


# -- what is shown ------------------------------------------------------------------------------------------


def markdown(scalings: Sequence[Scaling], samples: Sequence[Sample], parent: Parent) -> Iterator[str]:
    yield from head(["measured", "workers", "steps/s", "of as many loops", "of loops at once", "two parents"])
    for scaling in scalings:
        for count, result in scaling.results.items():
            yield row(measured(count, result))
    yield ""
    yield from head(["envs that return at once", "workers", "parent's CPU, us a batch", "by the model"])
    for one in samples:
        by_model = parent.us(one.num_envs, one.num_workers)
        yield row([str(one.num_envs), str(one.num_workers), f"{one.parent_us:.1f}", f"{by_model:.1f}"])
    yield f"\nThe parent: {parent.batch:.2f} us a batch + {parent.env:.3f} us an env + {parent.worker:.2f} us a worker."
    yield ""
    yield from predictions(scalings, parent)
    if scalings:
        result = next(iter(scalings[0].results.values()))
        yield (
            f"\n{machine.describe()}; {result.cores} cores; {NUM_ENVS} envs. "
            f"Medians of {result.rounds} interleaved rounds, {result.seconds:g} s a contender."
        )
    yield from failures([result for scaling in scalings for result in scaling.results.values()])


def measured(count: int, result: Result) -> list[str]:
    loops, parents = result.entry(LoopsAtOnce.name), result.entry(SeveralParents.name)
    rate = result.remuda.steps_per_second
    ratios = [
        result.ratio_to_ideal(result.remuda),
        None if loops is None else paired_ratio(result.remuda, loops),
        None if parents is None else result.ratio_to_ideal(parents),
    ]
    return [result.env, str(count), "failed" if rate is None else f"{rate:,.0f}", *map(report.ratio, ratios)]


def predictions(scalings: Sequence[Scaling], parent: Parent) -> Iterator[str]:
    """Of as many plain loops, by the number of workers, for one parent and for several."""
    columns = [f"{count} workers" for count in model.WORKERS]
    yield from head(["by the model, of as many loops", "parents", "us a step", *columns, "fastest with"])
    for scaling in scalings:
        found = cost_of_step(scaling, parent)
        if found is None:
            continue
        step, loop = found
        for parents in model.PARENTS:
            ratios = (model.of_loops(parent, step, loop, count, parents) for count in model.WORKERS)
            best = str(model.best_workers(parent, step, NUM_ENVS, NUM_ENVS)) if parents == 1 else ""
            cells = [scaling.results[1].env, str(parents), f"{step:.1f}", *map(report.ratio, ratios), best]
            yield row(cells)


def cost_of_step(scaling: Scaling, parent: Parent) -> tuple[float, float] | None:
    """In us: of a step in a worker, and in a plain loop."""
    entry, plain = scaling.results[1].remuda, scaling.results[1].plain
    if entry.steps_per_second is None or plain.steps_per_second is None:
        return None
    one = Sample(NUM_ENVS, 1, 0.0, 1e6 * NUM_ENVS / entry.steps_per_second)
    return model.step_us(parent, one), 1e6 / plain.steps_per_second


def to_json(scaling: Scaling) -> dict[str, Any]:
    return {
        "workload": scaling.workload,
        "by_workers": {count: report.to_json(result) for count, result in scaling.results.items()},
    }


if __name__ == "__main__":
    main()
