"""Runs RLlib's example of slow envs unedited, also with remuda's class in the place of Gymnasium's.

The program is `ray.rllib.examples.envs.async_gym_env_vectorization`, which comes with Ray. PPO learns for four
iterations of 4,000 steps on six CartPoles, which sleep for 5 ms in each step. RLlib makes its vector env by Gymnasium's
`make_vec`: in the mode "sync" a `SyncVectorEnv`, in the mode "async" an `AsyncVectorEnv`. For remuda's turns, that name
stands for `remuda.gymnasium.AsyncVectorEnv`. The program itself steps all envs (`--num-env-runners=0`), without Tune.

The whole run takes a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from unittest import mock

import gymnasium
from fetched import cells, columns
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, table

import remuda

EXAMPLE = "ray.rllib.examples.envs.async_gym_env_vectorization"
ITERATIONS = 4
OPTIONS = ("--no-tune", "--num-env-runners=0", f"--stop-iters={ITERATIONS}", "--stop-reward=inf")
CONTENDERS: Mapping[str, tuple[str, Any]] = {
    "sync": ("sync", gymnasium.vector.AsyncVectorEnv),
    "async": ("async", gymnasium.vector.AsyncVectorEnv),
    "remuda": ("async", remuda.gymnasium.AsyncVectorEnv),
}
"""By name: RLlib's mode, and what stands for the name `AsyncVectorEnv`."""

Speeds: TypeAlias = "dict[str, float]"
"""Env steps a second, by what they are a part of."""


def main() -> None:
    options = parse_options(__doc__, rounds=3)
    try:
        importlib.import_module("ray.rllib")
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: install benchmarks/requirements.txt")
    session = Session(options)
    turns = {name: functools.partial(run, *how) for name, how in CONTENDERS.items()}
    found = [speeds for _, speeds in session.measured(["the example"], lambda what: session.rounds(what, turns))]
    session.publish("published/rllib_slow_envs", markdown(found, session), found)


def run(mode: str, vector_env: Any) -> Speeds:
    """Runs the example in a mode of RLlib, with ``vector_env`` in the place of `AsyncVectorEnv`."""
    arguments = mock.patch.object(sys, "argv", [EXAMPLE, *OPTIONS, f"--vectorize-mode={mode}"])
    replaced = mock.patch.object(gymnasium.vector, "AsyncVectorEnv", vector_env)
    with arguments, replaced, contextlib.redirect_stdout(sys.stderr):
        found = runpy.run_module(EXAMPLE, run_name="__main__")["results"]
    steps = found["num_env_steps_sampled_lifetime"]
    sampled = found["env_runners"]["num_env_steps_sampled"] / found["timers"]["env_runner_sampling_timer"]
    return {"sampling alone": sampled, "sampling and learning": steps / found["time_total_s"]}


def markdown(found: Sequence[Mapping[str, Sequence[Speeds]]], session: Session) -> Iterator[Block]:
    for speeds in found:
        parts = list(next(iter(speeds.values()))[0])
        by_part = [{name: [one[part] for one in each] for name, each in speeds.items()} for part in parts]
        rows = ([part, *cells(rates)] for part, rates in zip(parts, by_part, strict=True))
        yield table(["env steps/s", *columns(by_part[0])], rows)
        yield conditions(session.options.rounds)


if __name__ == "__main__":
    main()
