"""Measures how long a learner waits for an env that failed at the start of an update, and was rebuilt meanwhile.

An update takes four seconds (twelve with Ray, which takes seconds to start an actor), and an env two seconds to build.
Each row has the times of the next two steps: the first ends the episode of the failed env, and the second resets its
successor. The figures are times, not ratios, so the noise rule does not apply.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness.envs import NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.tables import table

import remuda
from remuda import FaultPolicy, Pool
from remuda._system.machine import describe

NUM_ENVS = 4
UPDATE, RAYS_UPDATE, BUILD = 4.0, 12.0, 2.0  # seconds
STEP_TIMEOUT = 1.0


class SlowEnv(NullEnv):
    """Takes two seconds to build. Its third step does `accident`, if the file `once` is not there yet."""

    def __init__(self, accident: Callable[[], object], once: Path) -> None:
        super().__init__()
        time.sleep(BUILD)
        self.accident, self.once, self.steps = accident, once, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and not self.once.exists():
            self.once.touch()
            self.accident()
        return super().step(action)

    def pid(self) -> int:
        return os.getpid()


def hang() -> None:
    time.sleep(3600)


def fail() -> None:
    raise ValueError("broken")


def kill_worker(pool: Pool) -> None:
    os.kill(pool.call("pid", env_ids=[1])[0], signal.SIGKILL)


def measure(accident: Callable[[], object] | None, backend: Any = "process") -> list[float]:
    """Returns the seconds of the two steps after the update. `accident`: None: the worker or actor is killed."""
    with tempfile.TemporaryDirectory() as folder:
        once = Path(folder, "once")
        fns = [
            partial(SlowEnv, accident or (lambda: None), once if env == 1 else Path(folder)) for env in range(NUM_ENVS)
        ]
        faults = FaultPolicy("restart", backoff=0, step_timeout=STEP_TIMEOUT if accident is hang else None)
        with Pool(fns, backend=backend, faults=faults, log_advice=False) as pool:
            actions, times = np.zeros(NUM_ENVS, np.int64), []
            pool.reset()
            pool.step(actions), pool.step(actions)
            if accident is None:
                kill_worker(pool)
            pool.send(actions)  # the envs step while the learner learns
            time.sleep(UPDATE if backend == "process" else RAYS_UPDATE)
            for act in (pool.recv, partial(pool.step, actions)):
                begin = time.perf_counter()
                batch = act()
                times.append(time.perf_counter() - begin)
                assert batch.truncations[1] == (len(times) == 1)
            return times


def main() -> None:
    options = parse_options(__doc__, json=False, more=add_options)
    logging.getLogger("remuda").setLevel(logging.ERROR)
    cases: list[tuple[str, Any, Any]] = [
        ("a worker is killed", None, "process"),
        ("a step hangs, `step_timeout=1`", hang, "process"),
        ("a step raises", fail, "process"),
    ]
    if options.ray:
        cases.append(("an actor is killed, two shards on Ray", None, remuda.Ray(shards=2, backend="serial")))
    rows = [[name, *(f"{time:.3f} s" for time in measure(accident, backend))] for name, accident, backend in cases]
    lines = [table(["fault", "the step with the fault", "the next step"], rows)]
    lines.append(f"{NUM_ENVS} envs, one a worker, on {describe()}.")
    Session(options).publish("healing", lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ray", action="store_true", help="also with actors on a local Ray cluster")


if __name__ == "__main__":
    main()
