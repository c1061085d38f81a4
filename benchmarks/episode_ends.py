"""Counts the cost of the statistics `episode: {r, l, t}`, which RecordEpisodeStatistics and Monitor put into an info.

The same envs are stepped with and without that dict at the end of an episode, with next-step and same-step autoreset.
The cost of one end is the difference, divided by the number of ends. Valgrind counts the instructions of the worker and
its caller together (`backend="serial"`): the speed of a machine varies by more than an end costs, so no clock can
measure it.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from harness import callgrind
from harness.envs import Info, NullEnv, Step
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, table

import remuda
import remuda.gymnasium

NUM_ENVS = 8
ACTIONS = np.zeros(NUM_ENVS, np.int64)
OPTIONS: Any = {"backend": "serial", "log_advice": False}
WARM_UP = 40
"""Steps after which all columns exist."""
EPISODE_STEPS = 8
MODES = ("next_step", "same_step")
GOALS = {"next_step": 2.0, "same_step": 4.0}
"""At most this many microseconds an end."""
INSTRUCTIONS_PER_NS = 3.0


class EndingEnv(NullEnv):
    """An env with steps that take no time. First episodes differ in length, so the envs do not end at the same time."""

    def __init__(self, has_statistics: bool, tag: int = 0) -> None:
        super().__init__()
        self._has_statistics, self._steps, self._lead = has_statistics, 0, tag % EPISODE_STEPS

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        self._steps, self._lead = self._lead, 0
        return self._obs, {}

    def step(self, action: Any) -> Step:
        self._steps += 1
        if self._steps < EPISODE_STEPS:
            return self._obs, 1.0, False, False, {}
        info = {"episode": {"r": 1.0 * self._steps, "l": self._steps, "t": 0.25}} if self._has_statistics else {}
        return self._obs, 1.0, True, False, info


def steps_between_ends(mode: str) -> int:
    """Returns the number of batches between two ends of episodes. With next-step autoreset the reset takes one more."""
    return EPISODE_STEPS + (mode == "next_step")


# -- contenders: functions that make envs with `reset`, `step` and `close` ----------------------------------------


def make_pool(env_fns: list[Any], mode: Any) -> Any:
    return remuda.Pool(env_fns, autoreset=mode, **OPTIONS)


def make_face(env_fns: list[Any], mode: str) -> Any:
    autoreset = gymnasium.vector.AutoresetMode[mode.upper()]
    return remuda.gymnasium.AsyncVectorEnv(env_fns, autoreset_mode=autoreset, **OPTIONS)


def make_sb3(env_fns: list[Any], _: str) -> Any:
    """Makes the SB3 face. Ignores the autoreset mode, because SB3's is always same-step."""
    import remuda.sb3

    return remuda.sb3.SubprocVecEnv(env_fns, **OPTIONS)


CONTENDERS: dict[str, Callable[[list[Any], str], Any]] = {
    "remuda.Pool": make_pool,
    "remuda.Pool, infos read": make_pool,
    "remuda.gymnasium": make_face,
    "remuda.sb3": make_sb3,
}


def line_up(mode: str) -> list[str]:
    """Returns the contenders that support this autoreset mode, if their framework is installed."""
    has_sb3 = mode == "same_step" and importlib.util.find_spec("stable_baselines3") is not None
    return [name for name in CONTENDERS if name != "remuda.sb3" or has_sb3]


@dataclass(frozen=True)
class Cost:
    """The instructions, of worker and caller together, that the episode statistics cost at the end of one episode."""

    contender: str
    mode: str
    instructions: float


# -- counting ----------------------------------------------------------------------------------------------------


def measure(name: str, mode: str, batches: int) -> Cost:
    without, with_them = (
        sum(callgrind.count(__file__, "--run", name, mode, has_statistics, str(batches)))
        for has_statistics in ("0", "1")
    )
    return Cost(name, mode, (with_them - without) / (NUM_ENVS * batches / steps_between_ends(mode)))


def run_counted(name: str, mode: str, has_statistics: str, batches: str) -> None:
    """Runs under valgrind: steps a contender's envs, and switches the counting on for these steps only."""
    env_fns = [functools.partial(EndingEnv, has_statistics == "1", tag) for tag in range(NUM_ENVS)]
    with closing(CONTENDERS[name](env_fns, mode)) as envs:
        envs.reset()
        step = (lambda: list(envs.step(ACTIONS).infos)) if name.endswith("read") else (lambda: envs.step(ACTIONS))
        step_for(step, WARM_UP)
        callgrind.start()
        step_for(step, int(batches))
        callgrind.stop()


def step_for(step: Callable[[], object], batches: int) -> None:
    for _ in range(batches):
        step()


# -- the table ---------------------------------------------------------------------------------------------------


def markdown(costs: list[Cost]) -> Iterator[Block]:
    yield table(["contender", "autoreset", "goal", "instructions an end", "at 3 a ns"], map(row, costs))


def row(cost: Cost) -> list[str]:
    at_three = f"{cost.instructions / INSTRUCTIONS_PER_NS / 1000:.2f} us"
    return [f"`{cost.contender}`", cost.mode, f"<= {GOALS[cost.mode]:g} us", f"{cost.instructions:,.0f}", at_three]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--counted", type=int, default=360, help="steps whose instructions are counted (default: 360)")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)


def main() -> None:
    options = parse_options(__doc__, more=add_options)
    if options.run:
        return run_counted(*options.run)
    callgrind.require()
    costs = [measure(name, mode, options.counted) for mode in MODES for name in line_up(mode)]
    return Session(options).publish("episode_ends", markdown(costs), map(vars, costs))


if __name__ == "__main__":
    main()
