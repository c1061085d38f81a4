"""Measures a pool's speed by its number of workers, up to the cores of this machine, and predicts it for more cores.

First come measured figures: env steps per second of a pool by its number of workers, of as many plain loops at once,
and of several parents that share the envs. Then comes the model (`scaling_model.py`), fitted to the parent's CPU time
a batch, which does not depend on the number of cores. The model predicts machines with more cores. The kernel places
the workers; nothing here depends on NUMA.

The whole run takes about ten minutes on two cores; ``--quick`` is a rough look, ``--only pong`` a part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import scaling_model as model
from harness.envs import WORKLOADS as ALL_WORKLOADS
from harness.envs import NullEnv, missing
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, failures, parent_us, rate, table
from peers.plain import IdealLoops
from scaling_model import Parent, Sample

import remuda
from remuda._bench import report
from remuda._bench.contenders import Contender, PlainLoop, Plan, Remuda
from remuda._bench.results import Entry, Result, paired_ratio
from remuda._bench.workloads import EnvFactory, Workload, sample_actions
from remuda._system.cores import usable_cores

WORKLOADS = ("cartpole", "mujoco", "pong")
NUM_ENVS = model.NUM_ENVS
FITTED = tuple((num_envs, workers) for num_envs in (16, 64, 128) for workers in (1, 2, 8, 16))
"""(Envs, workers) for measuring the parent's CPU time. CPU time has no waiting, so workers may outnumber cores."""


class SeveralParents(Contender):
    """A contender with several parent processes. The pool of each has a share of the envs and of the workers.

    Each process steps its pool for a while and reports the number of steps, so no process waits for another.
    """

    name = "several parents"
    num_parents = 2

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        count = min(self.num_parents, plan.num_workers)
        shares = [(plan.num_envs // count, max(1, plan.num_workers // count))] * count
        self._parents = remuda.Pool([NullEnv] * count, num_workers=None, log_advice=False)
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
    """Runs in a parent process: makes the parent's pool. ``env`` is a placeholder that keeps and closes the pool."""
    env.pool = pool = remuda.Pool([make_env] * num_envs, num_workers=num_workers, log_advice=False)
    env.worker_pids = [worker.pid for worker in pool.workers]
    env.close = pool.close
    pool.reset(seed=seed)
    env.actions = sample_actions(pool.single_action_space, num_envs, 1, seed).batches[0]


def _step_for(env: Any, seconds: float) -> int:
    """Runs in a parent process: steps its pool for some seconds. Returns the number of env steps."""
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        steps += len(env.pool.step(env.actions))
    return steps


Results = Mapping[int, Result]
"""The results of a workload, by the number of workers."""


def main() -> None:
    options = parse_options(__doc__, workloads=WORKLOADS, seconds=5.0, quick=0.5, rounds=5, more=add_options)
    session = Session(options)
    session.leave_out(map(missing, options.only))
    there = [name for name in options.only if missing(name) is None]
    found = dict(session.measured(there, lambda name: measure(ALL_WORKLOADS[name](), session)))
    sizes = FITTED if not options.is_quick else FITTED[::3] + FITTED[1::3]
    null = ALL_WORKLOADS["null"]()
    samples = [one for _, one in session.measured(sizes, lambda size: sample(null, *size, session))]
    parent = model.fit(samples)
    figures = [to_json(name, results) for name, results in found.items()]
    fitted = {"parent": vars(parent), "samples": [vars(one) for one in samples]}
    session.publish("scaling", markdown(list(found.values()), samples, parent), [*figures, fitted])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most", type=int, default=usable_cores(), help="workers (default: as many as cores)")


def counts(most: int) -> list[int]:
    """Returns the numbers of workers to measure: 1, 2, 3, 4, 6, 8, 12, 16, ... up to ``most``, and ``most`` itself."""
    some = sorted({1, most, *(base * 2**power for base in (2, 3) for power in range(8))})
    return [count for count in some if count <= min(most, NUM_ENVS)]


def measure(workload: Workload, session: Session) -> Results:
    results = {}
    for count in counts(session.options.most):
        kinds: list[type[Contender]] = [PlainLoop, Remuda, IdealLoops, *([SeveralParents] if count > 1 else [])]
        results[count] = session.race(kinds, Plan(workload, NUM_ENVS, count))
    return results


def sample(workload: Workload, num_envs: int, num_workers: int, session: Session) -> Sample:
    """Measures the parent's CPU time with envs that return at once."""
    entry = session.race([PlainLoop, Remuda], Plan(workload, num_envs, num_workers)).remuda
    us = parent_us(entry)
    if entry.error is not None or us is None or entry.steps_per_second is None:
        raise SystemExit(f"{num_envs} envs, {num_workers} workers: {entry.error}")
    return Sample(num_envs, num_workers, us, 1e6 * num_envs / entry.steps_per_second)


# -- the tables ---------------------------------------------------------------------------------------------


def markdown(found: Collection[Results], samples: Sequence[Sample], parent: Parent) -> Iterator[Block]:
    columns = ["measured", "workers", "steps/s", "of as many loops", "of ideal-loops", "two parents"]
    yield table(columns, (measured(*one) for results in found for one in results.items()))
    columns = ["envs that return at once", "workers", "parent's CPU, us a batch", "by the model"]
    yield table(columns, (fitted(one, parent) for one in samples))
    yield f"The parent: {parent.batch:.2f} us a batch + {parent.env:.3f} us an env + {parent.worker:.2f} us a worker."
    columns = ["by the model, of as many loops", "parents", "us a step"]
    columns += [*(f"{count} workers" for count in model.WORKERS), "fastest with"]
    yield table(columns, (row for results in found for row in predictions(results, parent)))
    for results in list(found)[:1]:
        yield f"{conditions(results[1].rounds, results[1].seconds)} {NUM_ENVS} envs."
    yield from failures(result for results in found for result in results.values())


def measured(count: int, result: Result) -> list[str]:
    loops, parents = result.entry(IdealLoops.name), result.entry(SeveralParents.name)
    ratios = [
        of_loops(result, result.remuda, count),
        None if loops is None else paired_ratio(result.remuda, loops),
        None if parents is None else of_loops(result, parents, count),
    ]
    return [result.env, str(count), rate(result.remuda.steps_per_second), *map(report.ratio, ratios)]


def of_loops(result: Result, entry: Entry, count: int) -> float | None:
    """Returns the ratio of a contender's speed to that of ``count`` plain loops. None if it failed."""
    ratio = paired_ratio(entry, result.plain)
    return None if ratio is None else ratio / count


def fitted(one: Sample, parent: Parent) -> list[str]:
    by_model = parent.us(one.num_envs, one.num_workers)
    return [str(one.num_envs), str(one.num_workers), f"{one.parent_us:.1f}", f"{by_model:.1f}"]


def predictions(results: Results, parent: Parent) -> Iterator[list[str]]:
    """Yields a row for each number of parents: predicted speeds, as ratios to plain loops (`model.of_loops`)."""
    entry, plain = results[1].remuda, results[1].plain
    if entry.steps_per_second is None or plain.steps_per_second is None:
        return
    step = model.step_us(parent, Sample(NUM_ENVS, 1, 0.0, 1e6 * NUM_ENVS / entry.steps_per_second))
    for parents in model.PARENTS:
        shares = model.shares(parent, step, 1e6 / plain.steps_per_second, parents)
        yield [results[1].env, str(parents), f"{step:.1f}", *shares]


def to_json(workload: str, results: Results) -> dict[str, Any]:
    by_workers = {count: report.to_json(result) for count, result in results.items()}
    return {"workload": workload, "by_workers": by_workers}


if __name__ == "__main__":
    main()
