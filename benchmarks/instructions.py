"""Counts instructions by face: of the caller's thread for a batch of no-op envs, and of a worker for a step.

Valgrind's callgrind counts the instructions of each thread. Workers are threads here, which take the same path through
the core as processes do, because valgrind cannot watch processes as a pool does. Each number is the difference between
two runs of different length, so that one-time work does not count. A face whose framework is not installed is left out.

A program runs some fifty times slower under valgrind, and the clock does not. So work that is due after some time would
be done too often. Normally workers publish a part of a batch after 20 us; here after a second.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from harness import callgrind
from harness.envs import NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.tables import table

import remuda
from remuda._wire import layout

NUM_ENVS, MANY_ENVS = 8, 64
ACTIONS = np.zeros(NUM_ENVS, np.int64)
OPTIONS: Any = {"backend": "thread", "num_workers": 2, "log_advice": False}
SERIAL: Any = {"backend": "serial", "num_workers": 1}
RESTART: Any = {"faults": "restart"}
CARTPOLES: Any = {"make_env": partial(gymnasium.make, "CartPole-v1"), **SERIAL}
FEW, MANY = 200, 4200
"""The numbers of steps of the two runs, whose difference is counted."""
STRETCHED_NS = 1_000_000_000


# -- the programs that valgrind counts -------------------------------------------------------------------


def of_pool(steps: int, actions: Any = ACTIONS) -> None:
    with remuda.Pool([NullEnv] * len(actions), **OPTIONS) as pool:
        pool.reset()
        for _ in range(steps):
            pool.step(actions)


def of_reader(steps: int, beside: Callable[[Any], Any] = nullcontext, make_env: Any = NullEnv, **options: Any) -> None:
    """Steps a pool and reads all arrays of each batch. ``beside(pool)`` is a context manager around the steps."""
    with remuda.Pool([make_env] * NUM_ENVS, **{**OPTIONS, **options}) as pool, beside(pool):
        pool.reset()
        for _ in range(steps):
            batch = pool.step(ACTIONS)
            batch.obs, batch.rewards, batch.terminations, batch.truncations  # noqa: B018 - reading makes the arrays


@contextmanager
def traced(pool: remuda.Pool) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, pool.trace(Path(folder, "trace.json"), events=FEW):
        yield  # the trace has the same size in both runs, so its cost cancels out in their difference


@contextmanager
def watched(_: remuda.Pool) -> Iterator[None]:
    """Runs `remuda top` on this process again and again within the block."""
    look = f"{sys.executable} -m remuda top {os.getpid()} --json --interval 0.05"
    loop = ["sh", "-c", f"while :; do {look} || exit; done"]
    with subprocess.Popen(loop, stdout=subprocess.PIPE, start_new_session=True) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()  # waits for the first output of `remuda top`
        try:
            yield
        finally:
            os.killpg(watcher.pid, signal.SIGKILL)


def of_face(steps: int, make: Callable[[], Any]) -> None:
    envs = make()
    envs.reset()
    for _ in range(steps):
        envs.step(ACTIONS)
    envs.close()


def make_gymnasium() -> Any:
    return remuda.gymnasium.AsyncVectorEnv([NullEnv] * NUM_ENVS, **OPTIONS)


def make_sb3() -> Any:
    return remuda.sb3.SubprocVecEnv([NullEnv] * NUM_ENVS, **OPTIONS)


def of_tasks(steps: int) -> None:
    task = remuda.Task("null", NullEnv, success=lambda _: True, max_steps=steps)
    counts: Any = {"episodes": NUM_ENVS, "num_envs": NUM_ENVS, "min_envs": NUM_ENVS}
    remuda.evaluate_tasks(lambda obs: ACTIONS, [task], progress=False, **counts, **OPTIONS)


CASES: dict[str, tuple[str, Callable[[int], None]]] = {
    "pool": ("`remuda.Pool.step`, nothing of the batch read", of_pool),
    "pool-64": (f"... of {MANY_ENVS} envs", partial(of_pool, actions=np.zeros(MANY_ENVS, np.int64))),
    "reader": ("`remuda.Pool.step`, and `obs`, `reward`, `terminated`, `truncated` read", of_reader),
    "restart": ('... with `faults="restart"`', partial(of_reader, **RESTART)),
    "serial": (
        '`reader` with `backend="serial"`: caller and worker in one thread',
        partial(of_reader, **SERIAL),
    ),
    "serial-restart": ('... with `faults="restart"`', partial(of_reader, **SERIAL, **RESTART)),
    "cartpole": ("the same of CartPoles", partial(of_reader, **CARTPOLES)),
    "cartpole-restart": ('... with `faults="restart"`', partial(of_reader, **CARTPOLES, **RESTART)),
    "cartpole-traced": ("... traced", partial(of_reader, beside=traced, **CARTPOLES)),
    "cartpole-watched": ("... watched by `remuda top`", partial(of_reader, beside=watched, **CARTPOLES)),
    "traced": ("`reader`, traced", partial(of_reader, beside=traced)),
    "lists": ("`remuda.Pool.step`, actions in a list", partial(of_pool, actions=ACTIONS.tolist())),
    "int32": (
        "`remuda.Pool.step`, actions of int32 for an int64 space",
        partial(of_pool, actions=ACTIONS.astype(np.int32)),
    ),
    "gymnasium": ("`remuda.gymnasium.AsyncVectorEnv.step`", partial(of_face, make=make_gymnasium)),
    "sb3": ("`remuda.sb3.SubprocVecEnv.step`", partial(of_face, make=make_sb3)),
    "tasks": ("`remuda.evaluate_tasks`, with `min_envs=8`", of_tasks),
}
"""The cases by name, each with its text in the table and its program."""


# -- counting --------------------------------------------------------------------------------------------


def run_counted(case: str, steps: int) -> None:
    """Runs a case under valgrind, with the counting switched on."""
    layout.PUBLISH_NS = STRETCHED_NS
    callgrind.start()
    CASES[case][1](steps)


def measure(case: str) -> tuple[float, float]:
    """Returns two numbers of instructions: of the caller for a batch, and of a worker for an env's step."""
    few, many = (callgrind.count(__file__, "--run", case, str(steps)) for steps in (FEW, MANY))
    each = [(b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True)]
    return each[0], sum(each[1:]) / (MANY_ENVS if case == "pool-64" else NUM_ENVS)


def row(case: str, caller: float, worker: float) -> list[str]:
    return [CASES[case][0], f"{caller:,.0f}", f"{worker:,.0f}" if worker >= 1 else ""]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all of them, if none is named")
    parser.add_argument("--run", nargs=2, metavar=("CASE", "STEPS"), help=argparse.SUPPRESS)


def main() -> None:
    options = parse_options(__doc__, json=False, more=add_options)
    if options.run:
        return run_counted(options.run[0], int(options.run[1]))
    callgrind.require()
    session, rows = Session(options), []
    for case in options.cases or CASES:
        if case == "sb3" and importlib.util.find_spec("stable_baselines3") is None:
            session.leave_out(["sb3: Stable-Baselines3 is not installed"])
            continue
        rows.append(row(case, *measure(case)))
        print(*rows[-1], file=sys.stderr, sep=": ")
    columns = ["instructions", "of the caller, a batch of 8", "of a worker, a step of an env"]
    return session.publish("instructions", [table(columns, rows)])


if __name__ == "__main__":
    main()
