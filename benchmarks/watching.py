"""What a trace, and a `remuda top` that watches, cost a program that steps 8 CartPoles: counted in instructions.

Unlike times they do not depend on what else the machine does. The envs are stepped in the caller's thread
(`backend="serial"`): so there is one thread, nothing waits for anybody, and two runs differ by less than 0.1 %. What is
traced goes through the same code in every backend. Valgrind's callgrind counts from a moment when all is warm, to which
`callgrind_control` tells it, so that imports take no time.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np
from script import publish_lines
from tables import head, row

import remuda

NUM_ENVS, WARM_STEPS, STEPS, RUNS = 8, 50, 300, 2
NAMES = {"plain": "as it is", "traced": "traced", "watched": "watched by `remuda top`"}
PUSHES = (np.arange(NUM_ENVS) % 2, (np.arange(NUM_ENVS) + 1) % 2)


def play(case: str) -> None:
    """The program: waits for a line before it steps, and after that."""
    fns = [lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS
    with tempfile.TemporaryDirectory() as folder, remuda.Pool(fns, backend="serial", num_workers=1) as pool:
        recording: Any = pool.trace(Path(folder, "trace.json"), events=1 << 12) if case == "traced" else nullcontext()
        with recording:
            pool.reset(seed=0)
            step(pool, WARM_STEPS)
            gc.collect()
            gc.disable()
            meet()
            step(pool, STEPS)
            meet()


def step(pool: remuda.Pool, count: int) -> None:
    for number in range(count):
        batch = pool.step(PUSHES[number % 2])
        batch.obs, batch.reward, batch.terminated, batch.truncated  # noqa: B018 - they are made for it


def meet() -> None:
    print(flush=True)
    sys.stdin.readline()


def count(case: str) -> float:
    """Instructions of the program, a batch."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        command = ["setarch", "-R", *tool, sys.executable, __file__, "--run", case]  # addresses are the same each time
        variables = {**os.environ, "PYTHONHASHSEED": "0"}  # else dicts differ from run to run
        pipe: Any = subprocess.PIPE
        with subprocess.Popen(
            command, env=variables, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        ) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            await_line(program.stdout)
            subprocess.run(["callgrind_control", "--instr=on", str(program.pid)], check=True, capture_output=True)
            watcher = watch(program.pid) if case == "watched" else None
            tell(program.stdin)
            await_line(program.stdout)
            if watcher is not None:
                watcher.terminate()
                watcher.wait()
            subprocess.run(["callgrind_control", "--instr=off", str(program.pid)], check=True, capture_output=True)
            tell(program.stdin)
        lines = out.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("totals:")) / STEPS


def await_line(told: IO[str]) -> None:
    if not told.readline():
        raise SystemExit("expected the program to go on, and it has ended: run it without valgrind to see why")


def tell(program: IO[str]) -> None:
    program.write("\n")
    program.flush()


def watch(pid: int) -> subprocess.Popen[bytes]:
    """Looks at it again and again until it is ended; returns when it has looked once."""
    look = f"{sys.executable} -m remuda top {pid} --json --interval 0.05"
    watcher = subprocess.Popen(["sh", "-c", f"{look} && while {look} > /dev/null; do :; done"], stdout=subprocess.PIPE)
    assert watcher.stdout is not None
    if not watcher.stdout.readline():
        raise SystemExit(f"expected `{look}` to see the pool, and it did not")
    watcher.stdout.close()
    return watcher


def markdown(found: dict[str, list[float]]) -> Iterator[str]:
    yield from head(["the program is", f"instructions a batch of {NUM_ENVS}", "more than as it is", "run to run"])
    plain = min(found["plain"])
    for case, counts in found.items():
        more, spread = min(counts) / plain - 1, max(counts) / min(counts) - 1
        yield row([NAMES[case], f"{min(counts):,.0f}", f"{more:.2%}", f"{spread:.3%}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    parser.add_argument("--run", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return play(options.run)
    if missing := [tool for tool in ("valgrind", "callgrind_control", "setarch") if shutil.which(tool) is None]:
        sys.exit(f"expected {', '.join(missing)} on PATH, found none. Install it: apt-get install valgrind util-linux")
    found: dict[str, list[float]] = {case: [] for case in NAMES}
    for case in [*NAMES] * RUNS:
        found[case].append(count(case))
        print(f"{case}: {found[case][-1]:,.0f}", file=sys.stderr)
    return publish_lines("watching", markdown(found), options)


if __name__ == "__main__":
    main()
