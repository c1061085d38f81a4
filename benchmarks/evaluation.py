"""Measures `evaluate_tasks` against barrier batches, in which each batch lasts as long as its longest episode.

8 envs, each in its own process, play 48 episodes of 50 to 500 steps of 20 ms. The envs sleep, so they need no core. The
barrier batches run on a pool of the same envs; an env that has ended its episode is not stepped again, so a batch takes
the time of its longest episode, and no more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from harness.envs import NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.sleepers import sleep
from harness.tables import Block, table, verdict

import remuda
from remuda._system.machine import describe

NUM_ENVS, UNITS, GOAL = 8, 48, 1.3
LENGTHS = np.random.default_rng(0).permutation(np.linspace(50, 500, UNITS).astype(int)).tolist()


class Robot(NullEnv):
    """An env with steps of a given time. Its episode has the length in the options of the reset."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        self._left = options["init_state"]
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        sleep(self._seconds)
        self._left -= 1
        obs, reward, *_ = super().step(action)
        return obs, reward, self._left == 0, False, {"is_success": True}


def policy(obs: Any) -> Any:
    return np.zeros(len(obs), np.int64)


def without_barrier(seconds: float) -> float:
    task = remuda.Task("robot", partial(Robot, seconds), init_states=LENGTHS)
    begin = time.perf_counter()
    results = remuda.evaluate_tasks(policy, [task], episodes=UNITS, num_envs=NUM_ENVS, progress=False)
    assert [row["length"] for row in results.rows] == LENGTHS
    return time.perf_counter() - begin


def barrier_batches(seconds: float) -> float:
    begin = time.perf_counter()
    with remuda.Pool([partial(Robot, seconds)] * NUM_ENVS, num_workers=None, autoreset="disabled") as pool:
        for first in range(0, UNITS, NUM_ENVS):
            options = [{"init_state": length} for length in LENGTHS[first : first + NUM_ENVS]]
            batch = pool.reset(seed=first, options=options)
            while len(batch):
                playing = batch.env_ids[~batch.terminations].tolist()
                if not playing:
                    break
                batch = pool.step(policy(playing), playing)
    return time.perf_counter() - begin


def arithmetic(seconds: float) -> tuple[float, float]:
    """Returns the seconds of both ways if nothing but the sleeps took time."""
    loads = [0] * NUM_ENVS
    for length in LENGTHS:  # the env that is free first takes the next episode
        loads[loads.index(min(loads))] += length
    batches = [LENGTHS[first : first + NUM_ENVS] for first in range(0, UNITS, NUM_ENVS)]
    return max(loads) * seconds, sum(map(max, batches)) * seconds


def main() -> None:
    options = parse_options(__doc__, rounds=3, more=add_options)
    session, seconds = Session(options), options.step_ms / 1e3
    turns = {"evaluate_tasks": partial(without_barrier, seconds), "barrier batches": partial(barrier_batches, seconds)}
    figures = list(session.measured([seconds], lambda _: session.rounds(f"{UNITS} episodes", turns)))
    session.publish("evaluation", (line for _, found in figures for line in markdown(found, seconds)), figures)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--step-ms", type=float, default=20.0, help="the milliseconds of a step (default: 20)")


def markdown(found: dict[str, list[float]], seconds: float) -> Iterator[Block]:
    """Yields the table of the times, with the ratio of the rounds and of the sleeps alone."""
    ours, theirs = arithmetic(seconds)
    ratio = median(there / here for here, there in zip(*found.values(), strict=True))
    cells = [
        f"{median(times):.1f} s ({sleeps:.1f} s)" for times, sleeps in zip(found.values(), (ours, theirs), strict=True)
    ]
    columns = [*found, "ratio", "goal", ""]
    yield table(columns, [[*cells, f"{ratio:.2f} ({theirs / ours:.2f})", f">= {GOAL}", verdict(GOAL, ratio)]])
    yield (
        f"{UNITS} episodes of 50 to 500 steps of {1e3 * seconds:g} ms in {NUM_ENVS} envs, one a worker, on "
        f"{describe()}. The times include the start of the workers. In brackets: the sleeps alone."
    )


if __name__ == "__main__":
    main()
