"""How many instructions the caller's thread executes for a batch of 8 no-op envs, by face, and a worker for a step.

Unlike times they do not depend on what else the machine does. Valgrind's callgrind counts them, of each thread by
itself: workers are threads here, which take the same way through the core as processes do. (Valgrind lets no process
be watched as a pool watches its workers.) Each number is the difference between two runs of different length, so that
what happens once does not count. A face is in the table where the framework that it stands for is installed.

A program runs some fifty times slower under valgrind, and the clock does not. So what happens after some time would
happen too often, and is put off here: that workers publish what they have of a batch (after 20 us, which is more than
a few such steps take), and that the pool looks at processes and deadlines (every 10 ms, some 300 instructions).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from python_calls import ACTIONS, NUM_ENVS, PoleEnv
from script import publish_lines
from tables import head, row

import remuda
from remuda._wire import layout

WORKERS = 2
OPTIONS: Any = {"backend": "thread", "num_workers": WORKERS, "advise": False}
FEW, MANY = 200, 4200  # steps
STRETCHED_NS = 1_000_000_000


def put_off_looks(pool: remuda.Part) -> None:
    pool._engine.running.hub.workers.look_every(STRETCHED_NS)


def of_pool(steps: int, actions: Any = ACTIONS) -> None:
    with remuda.Pool([PoleEnv] * NUM_ENVS, **OPTIONS) as pool:
        put_off_looks(pool)
        pool.reset()
        for _ in range(steps):
            pool.step(actions)


def of_reader(steps: int, make_env: Callable[[], Any] = PoleEnv, **options: Any) -> None:
    with remuda.Pool([make_env] * NUM_ENVS, **{**OPTIONS, **options}) as pool:
        put_off_looks(pool)
        pool.reset()
        for _ in range(steps):
            batch = pool.step(ACTIONS)
            batch.obs, batch.reward, batch.terminated, batch.truncated  # noqa: B018 - they are made for it


def of_restarts(steps: int) -> None:
    of_reader(steps, faults="restart")


def of_serial(steps: int, **options: Any) -> None:
    of_reader(steps, backend="serial", num_workers=1, **options)


def of_serial_restarts(steps: int) -> None:
    of_serial(steps, faults="restart")


def of_cart_poles(steps: int, **options: Any) -> None:
    of_serial(steps, make_env=partial(gymnasium.make, "CartPole-v1"), **options)


def of_cart_poles_restarts(steps: int) -> None:
    of_cart_poles(steps, faults="restart")


def of_traced(steps: int) -> None:
    path = Path(tempfile.mkdtemp(), "trace.json")  # what is written at the end is as long, however many steps there are
    with remuda.Pool([PoleEnv] * NUM_ENVS, **OPTIONS) as pool, pool.trace(path, events=FEW):
        put_off_looks(pool)
        pool.reset()
        for _ in range(steps):
            batch = pool.step(ACTIONS)
            batch.obs, batch.reward, batch.terminated, batch.truncated  # noqa: B018 - they are made for it
    shutil.rmtree(path.parent)


def of_lists(steps: int) -> None:
    of_pool(steps, ACTIONS.tolist())


def of_int32(steps: int) -> None:
    of_pool(steps, ACTIONS.astype(np.int32))


def of_gymnasium(steps: int) -> None:
    envs: Any = remuda.gymnasium.AsyncVectorEnv([PoleEnv] * NUM_ENVS, **OPTIONS)
    put_off_looks(envs.pool)
    envs.reset()
    for _ in range(steps):
        envs.step(ACTIONS)
    envs.close()


def of_sb3(steps: int) -> None:
    envs = remuda.sb3.SubprocVecEnv([PoleEnv] * NUM_ENVS, **OPTIONS)
    put_off_looks(envs.pool)
    envs.reset()
    for _ in range(steps):
        envs.step(ACTIONS)
    envs.close()


CASES: dict[str, Callable[[int], None]] = {
    "pool": of_pool,
    "reader": of_reader,
    "restart": of_restarts,
    "serial": of_serial,
    "serial-restart": of_serial_restarts,
    "cartpole": of_cart_poles,
    "cartpole-restart": of_cart_poles_restarts,
    "traced": of_traced,
    "lists": of_lists,
    "int32": of_int32,
    "gymnasium": of_gymnasium,
    "sb3": of_sb3,
}
NAMES = {
    "pool": "`remuda.Pool.step`, nothing of the batch read",
    "reader": "... and `obs`, `reward`, `terminated`, `truncated` read",
    "restart": '... with `faults="restart"`',
    "serial": '`reader` with `backend="serial"`: caller and worker in one thread',
    "serial-restart": '... with `faults="restart"`',
    "cartpole": "the same of CartPoles",
    "cartpole-restart": '... with `faults="restart"`',
    "traced": "`reader`, traced",
    "lists": "`remuda.Pool.step`, actions in a list",
    "int32": "`remuda.Pool.step`, actions of int32 for an int64 space",
    "gymnasium": "`remuda.gymnasium.AsyncVectorEnv.step`",
    "sb3": "`remuda.sb3.SubprocVecEnv.step`",
}


# -- counting ------------------------------------------------------------------------------------------


def count(case: str, steps: int) -> list[int]:
    """Instructions of each thread, the caller's first, for a program with so many steps, but for its imports."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        options = ["--instr-atstart=no", "--separate-threads=yes", f"--callgrind-out-file={out}"]
        subprocess.run(
            ["valgrind", "--tool=callgrind", *options, sys.executable, __file__, "--run", case, str(steps)],
            env={**os.environ, "PYTHONHASHSEED": "0"},  # else dicts differ from run to run
            check=True,
            capture_output=True,
        )
        return [_total(file) for file in sorted(Path(folder).glob("out-*"))]


def run_counted(case: str, steps: int) -> None:
    """What is run under valgrind."""
    layout.PUBLISH_NS = STRETCHED_NS
    subprocess.run(["callgrind_control", "--instr=on", str(os.getpid())], check=True, capture_output=True)
    CASES[case](steps)


def _total(file: Path) -> int:
    lines = file.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("totals:"))


def measure(case: str) -> tuple[float, float]:
    """Of the caller a batch, and of a worker an env's step."""
    few, many = count(case, FEW), count(case, MANY)
    each = [(b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True)]
    return each[0], sum(each[1:]) / NUM_ENVS


def markdown(found: dict[str, tuple[float, float]]) -> Iterator[str]:
    yield from head(["instructions", "of the caller, a batch of 8", "of a worker, a step of an env"])
    for case, (caller, worker) in found.items():
        yield row([NAMES[case], f"{caller:,.0f}", f"{worker:,.0f}" if worker >= 1 else ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all of them, if none is named")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    parser.add_argument("--run", nargs=2, metavar=("CASE", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return run_counted(options.run[0], int(options.run[1]))
    if shutil.which("valgrind") is None:
        sys.exit("expected valgrind on PATH, found none. Install it: apt-get install valgrind, dnf install valgrind")
    found = {}
    for case in options.cases or CASES:
        if case == "sb3" and importlib.util.find_spec("stable_baselines3") is None:
            print("sb3 is left out: Stable-Baselines3 is not installed", file=sys.stderr)
            continue
        found[case] = measure(case)
        print(f"{case}: {found[case][0]:,.0f} and {found[case][1]:,.0f}", file=sys.stderr)
    return publish_lines("instructions", markdown(found), options)


if __name__ == "__main__":
    main()
