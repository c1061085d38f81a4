"""Runs TorchRL's own benchmark of ParallelEnv's start unedited, also with a remuda pool in the place of that class.

The source is `benchmarks/benchmark_parallel_env_startup.py` of pytorch/rl, at the commit in `SOURCE`. It makes 20 envs,
which take 10 ms to build, in a process each, and resets them. TorchRL learns from the workers what the envs' data look
like: that is the fastest of its three ways (`--mode workers`). The script replaces the name `ParallelEnv` by
`RemudaParallelEnv`, which has the methods that the file calls. Each process imports PyTorch and TorchRL, but not if
remuda's fork server has done so before (`preload=`). Needs torchrl.

The whole run takes ten minutes.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any
from unittest import mock

import fetched
import numpy as np
from fetched import Source
from gymnasium import spaces
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, figure, table, verdict
from torchrl_envs import TorchRLEnv

import remuda

try:
    from torchrl.testing.mocking_classes import CountingEnv  # the benchmark's env is a subclass
except ModuleNotFoundError as error:
    sys.exit(f'{error}: pip install "torch==2.13.0" "torchrl>=0.14", or all of benchmarks/requirements.txt')

SOURCE = Source(
    "pytorch/rl",
    "92ab25be129cb18b17f8145124d57eac041e444a",
    "benchmarks/benchmark_parallel_env_startup.py",
    "606fff0eaaafb456540afc5820a4edce61d0093a1ebb1ea0fff8c7655c0b4220",
)
NUM_ENVS, BUILD_SECONDS = 20, 0.01
METHODS = ("spawn", "forkserver")
Seconds = Mapping[str, Sequence[float]]
"""The seconds of a start by contender, one for each round."""


# -- remuda in the place of ParallelEnv ---------------------------------------------------------------------------


class CountingTorchRLEnv(TorchRLEnv):
    """The benchmark's env of TorchRL as one of Gymnasium's, for a worker of remuda."""

    action_space = spaces.MultiBinary(1)

    def __init__(self, make_env: Callable[[], Any]) -> None:
        super().__init__(make_env)
        self.observation_space = spaces.Box(-(2**31), 2**31 - 1, (1,), np.int32)

    def close(self) -> None:
        self._env.close()


class RemudaParallelEnv:
    """A `remuda.Pool` with the methods of ParallelEnv that the benchmark calls. The options are ParallelEnv's."""

    def __init__(
        self,
        num_workers: int,
        create_env_fn: Callable[..., Any],
        *,
        create_env_kwargs: Sequence[dict[str, Any]],
        mp_start_method: Any,
        **_options: Any,
    ) -> None:
        makers = [functools.partial(create_env_fn, **each) for each in create_env_kwargs]
        env_fns = [functools.partial(CountingTorchRLEnv, make) for make in makers]
        options: Any = {"start_method": mp_start_method, "start_timeout": None, "log_advice": False}
        if mp_start_method == "forkserver":
            options["preload"] = [CountingEnv.__module__]
        self._pool = remuda.Pool(env_fns, num_workers=None, **options)
        self._actions = np.zeros((num_workers, 1), np.int8)

    def reset(self) -> None:
        self._pool.reset()

    def rand_step(self, _found: Any) -> None:
        self._pool.step(self._actions)

    def close(self, raise_if_closed: bool) -> None:
        self._pool.close()


# -- the benchmark ------------------------------------------------------------------------------------------------


def main() -> None:
    options = parse_options(__doc__, workloads=METHODS, rounds=3, more=add_options)
    file = fetched.import_file(SOURCE.fetch(options.source))
    session = Session(options)
    found = list(session.measured(options.only, lambda method: measure(method, file, session)))
    session.publish("published/torchrl_startup", markdown(found, session), (seconds for _, seconds in found))


def add_options(parser: argparse.ArgumentParser) -> None:
    SOURCE.add_option(parser)


def measure(method: str, file: ModuleType, session: Session) -> Seconds:
    contenders = {"ParallelEnv": file.ParallelEnv, "remuda": RemudaParallelEnv}
    turns = {name: functools.partial(start, method, file, contender) for name, contender in contenders.items()}
    return session.rounds(method, turns)


def start(method: str, file: ModuleType, parallel_env: type) -> float:
    """Runs the file's benchmark with this class in the place of ParallelEnv. Returns the seconds until the reset."""
    with mock.patch.object(file, "ParallelEnv", parallel_env), tempfile.TemporaryDirectory() as folder:
        found = file._run_mode(
            "workers",
            num_workers=NUM_ENVS,
            delay=BUILD_SECONDS,
            start_method=method,
            marker_dir=Path(folder),
        )
    return float(found["construct_seconds"] + found["reset_seconds"])


def markdown(found: Sequence[tuple[str, Seconds]], session: Session) -> Iterator[Block]:
    for _, first in found[:1]:
        rows = [[method, *cells(seconds)] for method, seconds in found]
        yield table(["start method, seconds", *first, "ParallelEnv : remuda", ""], rows)
        yield conditions(session.options.rounds)


def cells(seconds: Seconds) -> list[str]:
    ratio = median(theirs / ours for theirs, ours in zip(seconds["ParallelEnv"], seconds["remuda"], strict=True))
    return [*(f"{median(each):.2f}" for each in seconds.values()), figure(ratio), verdict(1.0, ratio)]


if __name__ == "__main__":
    main()
