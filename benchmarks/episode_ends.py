"""What the statistics of an episode cost at its end: the dict `episode: {r, l, t}` that RecordEpisodeStatistics and
Monitor put into the info, with next-step and same-step autoreset.

The same envs are stepped with and without that dict; an end costs the difference, by the number of ends. In time it is
the median of interleaved rounds; in instructions, which other work on the machine does not touch, it is what valgrind
counts, of the worker and its caller together (`backend="serial"`).
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import gymnasium
import numpy as np
from script import publish
from tables import head, row

import remuda
import remuda.gymnasium

NUM_ENVS = 16
COUNTED_ENVS = 8
WARM_UP = 40  # steps, after which all columns are there
EPISODE_STEPS = 8
MODES = ("next_step", "same_step")
GOALS = {"next_step": 2.0, "same_step": 4.0}  # us
INSTRUCTIONS_PER_NS = 3.0


class EndingEnv(gymnasium.Env[Any, Any]):
    """Returns at once. Episodes are short and of one length, but for the first of each: envs end at different times."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, has_statistics: bool, tag: int = 0) -> None:
        self._has_statistics, self._steps, self._lead = has_statistics, 0, tag % EPISODE_STEPS
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps, self._lead = self._lead, 0
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._steps < EPISODE_STEPS:
            return self._obs, 1.0, False, False, {}
        info = {"episode": {"r": 1.0 * self._steps, "l": self._steps, "t": 0.25}} if self._has_statistics else {}
        return self._obs, 1.0, True, False, info


def steps_between_ends(mode: str) -> int:
    """With next-step autoreset the reset takes a step of its own."""
    return EPISODE_STEPS + (mode == "next_step")


# -- contenders: each makes what does one step of all envs, and what closes them ------------------------------

Stepper = tuple[Callable[[], object], Callable[[], None]]


def make_pool(env_fns: list[Any], mode: str, **options: Any) -> Stepper:
    pool = remuda.Pool(env_fns, autoreset=mode, advise=False, **options)  # type: ignore[arg-type]
    pool.reset()
    actions = np.zeros(len(env_fns), np.int64)
    return lambda: pool.step(actions), pool.close


def make_pool_read(env_fns: list[Any], mode: str, **options: Any) -> Stepper:
    pool = remuda.Pool(env_fns, autoreset=mode, advise=False, **options)  # type: ignore[arg-type]
    pool.reset()
    actions = np.zeros(len(env_fns), np.int64)
    return lambda: list(pool.step(actions).infos), pool.close


def make_face(env_fns: list[Any], mode: str, **options: Any) -> Stepper:
    envs: Any = remuda.gymnasium.AsyncVectorEnv(env_fns, autoreset_mode=_gymnasium_mode(mode), advise=False, **options)
    return _stepper(envs, len(env_fns))


def make_gymnasium(env_fns: list[Any], mode: str, **_: Any) -> Stepper:
    return _stepper(gymnasium.vector.AsyncVectorEnv(env_fns, autoreset_mode=_gymnasium_mode(mode)), len(env_fns))


def make_sb3(env_fns: list[Any], mode: str, **options: Any) -> Stepper:
    """Its autoreset is always of the same step."""
    import remuda.sb3

    envs: Any = remuda.sb3.SubprocVecEnv(env_fns, advise=False, **options)
    return _stepper(envs, len(env_fns))


def _stepper(envs: Any, num_envs: int) -> Stepper:
    envs.reset()
    actions = np.zeros(num_envs, np.int64)
    return lambda: envs.step(actions), envs.close


def _gymnasium_mode(mode: str) -> gymnasium.vector.AutoresetMode:
    return gymnasium.vector.AutoresetMode[mode.upper()]


CONTENDERS = {
    "remuda.Pool": make_pool,
    "remuda.Pool, infos read": make_pool_read,
    "remuda.gymnasium": make_face,
    "remuda.sb3": make_sb3,
    "gymnasium": make_gymnasium,
}
OURS = [name for name in CONTENDERS if name.startswith("remuda")]


def line_up(mode: str) -> list[str]:
    """Those that have this mode, and whose framework is installed."""
    has_sb3 = mode == "same_step" and _is_installed("stable_baselines3")
    return [name for name in CONTENDERS if name != "remuda.sb3" or has_sb3]


def _is_installed(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


@dataclass(frozen=True)
class Cost:
    """What an end with statistics costs more than one without.

    Attributes:
        us: Microseconds of a step of all envs, by the number of ends in it; median of the rounds. None where it was not
            timed.
        instructions: In the worker and its caller together; None where they were not counted.
    """

    contender: str
    mode: str
    us: float | None
    instructions: float | None


# -- time ----------------------------------------------------------------------------------------------------


def time_ends(name: str, mode: str, rounds: int, batches: int) -> float:
    """In us."""
    both = [_start(name, mode, NUM_ENVS, has_statistics, num_workers=2) for has_statistics in (False, True)]
    differences = []
    try:
        for _ in range(rounds + 1):
            without, with_them = (_seconds(step, batches) for step, _ in both)
            differences.append(with_them - without)
    finally:
        for _, close in both:
            close()
    ends = NUM_ENVS * batches / steps_between_ends(mode)
    return median(differences[1:]) / ends * 1e6  # the first round warms up


def _start(name: str, mode: str, num_envs: int, has_statistics: bool, **options: Any) -> Stepper:
    env_fns = [functools.partial(EndingEnv, has_statistics, tag) for tag in range(num_envs)]
    return CONTENDERS[name](env_fns, mode, **options)


def _seconds(step: Callable[[], object], batches: int) -> float:
    begin = time.perf_counter()
    _step_for(step, batches)
    return time.perf_counter() - begin


# -- instructions -------------------------------------------------------------------------------------------------


def count_instructions(name: str, mode: str, batches: int) -> float | None:
    """Of an end, by valgrind; None where there is none."""
    if name not in OURS or shutil.which("valgrind") is None:
        return None
    without, with_them = (_instructions_of(name, mode, has_statistics, batches) for has_statistics in (False, True))
    return (with_them - without) / (COUNTED_ENVS * batches / steps_between_ends(mode))


def _instructions_of(name: str, mode: str, has_statistics: bool, batches: int) -> int:
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*valgrind, sys.executable, __file__, "--run", name, mode, str(int(has_statistics)), str(batches)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        raise ValueError(f"expected valgrind to say how many instructions it has counted, got {done.stderr!r}")
    return int(found[1])


def run_counted(name: str, mode: str, has_statistics: str, batches: str) -> None:
    """What is run under valgrind, which counts the batches and nothing else."""
    step, close = _start(name, mode, COUNTED_ENVS, bool(int(has_statistics)), backend="serial")
    _step_for(step, WARM_UP)
    _count(True)
    _step_for(step, int(batches))
    _count(False)
    close()


def _count(on: bool) -> None:
    subprocess.run(["callgrind_control", f"--instr={'on' if on else 'off'}", str(os.getpid())], check=True)


def _step_for(step: Callable[[], object], batches: int) -> None:
    for _ in range(batches):
        step()


# -- what is printed ---------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> Iterator[Cost]:
    for mode in MODES:
        for name in line_up(mode):
            instructions = count_instructions(name, mode, options.counted) if options.counted else None
            us = time_ends(name, mode, options.rounds, options.batches) if options.rounds else None
            if us is not None or instructions is not None:
                yield Cost(name, mode, us, instructions)


def markdown(costs: list[Cost]) -> Iterator[str]:
    yield from head(["contender", "autoreset", "goal", "an end", "instructions an end", "at 3 a ns"])
    for cost in costs:
        goal = f"<= {GOALS[cost.mode]:g} us" if cost.contender in OURS else ""
        counted = ("", "")
        if cost.instructions is not None:
            counted = f"{cost.instructions:,.0f}", f"{cost.instructions / INSTRUCTIONS_PER_NS / 1000:.2f} us"
        timed = "" if cost.us is None else f"{cost.us:.1f} us"
        yield row([f"`{cost.contender}`", cost.mode, goal, timed, *counted])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default: 15); 0: no time")
    parser.add_argument("--batches", type=int, default=360, help="steps of all envs in a round (default: 360)")
    parser.add_argument("--counted", type=int, default=360, help="steps whose instructions are counted; 0: none")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return run_counted(*options.run)
    costs = list(measure(options))
    return publish("episode-ends", markdown(costs), map(vars, costs), options)


if __name__ == "__main__":
    main()
