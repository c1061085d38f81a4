"""Predicts how the parent's serial work limits a pool's speed, by a model of a batch's time.

    python benchmarks/scaling_model.py 5 0.05 0.65      the parent's us a batch, an env, a worker

In lockstep a batch of N envs on w workers takes

    T(N, w) = a + b N + c w  +  e N / w

The first three terms are the parent's time, in which no worker works: `a` for a batch, `b` for an env (its action and
result), `c` for a worker (its ring and its wake-up). The last term is the workers' time: `e` is an env's step with the
work around it. A policy adds its own time. With P parents, each of which has a share of the envs and of the workers,

    T(N, w, P) = a + (b N + c w) / P  +  e N / w

and each parent keeps a core busy, which no worker can use. Times are in us.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from harness import tables

from remuda._bench import report

NUM_ENVS = 64
STEPS_US = (5.0, 60.0, 450.0)
"""Rounded step times of CartPole, HalfCheetah and preprocessed Pong."""
WORKERS = (1, 2, 4, 8, 16, 32)
PARENTS = (1, 2, 4)


@dataclass(frozen=True)
class Sample:
    """The measured times of a pool with one number of envs and of workers.

    Attributes:
        parent_us: CPU time of the parent for a batch.
        batch_us: Time from one batch to the next.
    """

    num_envs: int
    num_workers: int
    parent_us: float
    batch_us: float


@dataclass(frozen=True)
class Parent:
    """The parent's serial time, in us: for each batch, for each env and for each worker."""

    batch: float
    env: float
    worker: float

    def us(self, num_envs: float, num_workers: float) -> float:
        return self.batch + self.env * num_envs + self.worker * num_workers


def fit(samples: Iterable[Sample]) -> Parent:
    """Fits the parent's costs by least squares of the relative errors. No cost is below 0.

    Raises:
        ValueError: All samples have the same number of envs, or the same number of workers.
    """
    known = list(samples)
    if any(len({getattr(sample, name) for sample in known}) < 2 for name in ("num_envs", "num_workers")):
        raise ValueError("expected samples with different numbers of envs and of workers, to tell their costs apart")
    shares = np.array([[1.0, sample.num_envs, sample.num_workers] for sample in known])
    measured = np.array([sample.parent_us for sample in known])
    return Parent(*_non_negative(shares / measured[:, None], np.ones(len(known))))


def _non_negative(matrix: np.ndarray, target: np.ndarray) -> list[float]:
    """Solves least squares without negative factors: drops the column of the most negative one until none is left."""
    columns = list(range(matrix.shape[1]))
    while True:
        found = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
        if (found >= 0).all() or len(columns) == 1:
            factors = np.zeros(matrix.shape[1])
            factors[columns] = np.maximum(found, 0.0)
            return factors.tolist()  # type: ignore[no-any-return]
        del columns[int(found.argmin())]


def step_us(parent: Parent, sample: Sample) -> float:
    """Returns the time of an env's step in a worker, derived from the time between batches with one worker."""
    if sample.num_workers != 1:
        raise ValueError(f"expected a sample of one worker, got one of {sample.num_workers}")
    return max(0.0, sample.batch_us - parent.us(sample.num_envs, 1)) / sample.num_envs


def batch_us(parent: Parent, step: float, num_envs: int, num_workers: int, parents: int = 1) -> float:
    """Returns the predicted time of a batch. Each parent has a share of the envs, and each process has a core."""
    largest = -(-num_envs // num_workers)  # the parent waits for the worker with most envs
    return parent.us(num_envs / parents, num_workers / parents) + step * largest


def best_workers(parent: Parent, step: float, num_envs: int, most: int) -> int:
    """Returns the number of workers for which the model predicts the shortest batch."""
    return min(range(1, min(most, num_envs) + 1), key=lambda count: batch_us(parent, step, num_envs, count))


def of_loops(parent: Parent, step: float, loop: float, num_workers: int, parents: int = 1) -> float | None:
    """Returns the predicted speed of a pool of `NUM_ENVS` envs, divided by the speed of ``num_workers`` plain loops.

    ``loop``: us of a step in a plain loop. None if there are fewer workers than parents.
    """
    if num_workers < parents:
        return None
    return NUM_ENVS * loop / num_workers / batch_us(parent, step, NUM_ENVS, num_workers, parents)


def shares(parent: Parent, step: float, loop: float, parents: int) -> list[str]:
    """Returns the cells of a table row: `of_loops` for each number of workers, and the number with the highest speed.

    With several parents, the last cell is empty.
    """
    ratios = (of_loops(parent, step, loop, count, parents) for count in WORKERS)
    best = str(best_workers(parent, step, NUM_ENVS, NUM_ENVS)) if parents == 1 else ""
    return [*map(report.ratio, ratios), best]


def table(parent: Parent) -> tables.Table:
    """Returns the table of predicted speeds. A step is assumed to take as long in a worker as in a plain loop."""
    columns = ["us a step", "parents", *(f"{count} workers" for count in WORKERS), "fastest with"]
    cases = ((step, parents) for step in STEPS_US for parents in PARENTS)
    return tables.table(columns, ([f"{step:g}", str(n), *shares(parent, step, step, n)] for step, n in cases))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("batch", "env", "worker"):
        parser.add_argument(name, type=float, help=f"us of the parent for each {name}")
    print(table(Parent(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
