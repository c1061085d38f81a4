"""Runs TorchRL's own benchmark of AsyncEnvPool unedited, also with a remuda pool in the place of that class.

The source is `benchmarks/test_envs_benchmark.py` of pytorch/rl, at the commit in `SOURCE`. The first test is
`test_async_env_pool_dispatch`: 8 envs whose steps take no time, and 1,024 transitions a round. The second is
`test_async_env_pool_fast_step_slow_reset`: 32 envs, 1 ms a step, 200 ms a reset after 200 steps, and 2,048 transitions.
TorchRL does not run the second with its `queue` exchange.

The script replaces the name `AsyncEnvPool` that the file has imported by `RemudaEnvPool`, which has the methods that
the file calls, and makes the same tensordicts. Each contender has a process for each env, which steps TorchRL's env and
resets it when its episode ends; all workers are forked. A turn is one test, with the 5 rounds that the file asks for.

`benchmarks/test_collectors_benchmark.py -k 'async_env_pool or async_collection_pixels'` cannot run with remuda: its
collector owns the pool, the processes and the policy's server, and uses much more of TorchRL's classes than the pool's
methods. The nearest fair race is `torchrl_pools.py`, one folder above. Needs torchrl and pytest.

The whole run takes ten minutes.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import mean
from types import ModuleType
from typing import Any
from unittest import mock

import fetched
import gymnasium
import numpy as np
from fetched import Rates, Source, cells, columns
from gymnasium import spaces
from harness.options import parse_options
from harness.session import Session
from harness.tables import Block, conditions, table

import remuda

try:
    torch = importlib.import_module("torch")
    tensordict = importlib.import_module("tensordict")
    from peers.torchrl import start_method
except ModuleNotFoundError as error:
    sys.exit(f'{error}: pip install "torch==2.13.0" "torchrl>=0.14" pytest, or all of benchmarks/requirements.txt')

SOURCE = Source(
    "pytorch/rl",
    "ade920b5c040359ba54d021f3a17345d5bd2f4ae",
    "benchmarks/test_envs_benchmark.py",
    "67406691958eb8dd784549aa738bf9f1b7638b5e5dede1b03c9907fe832a5933",
)
TESTS = {"dispatch": ("queue", "shm"), "fast_step_slow_reset": ("shm",)}
"""The tests, and the exchanges with which TorchRL runs them."""


# -- remuda in the place of AsyncEnvPool ----------------------------------------------------------------------


class TorchRLEnv(gymnasium.Env[Any, Any]):
    """An env of TorchRL as one of Gymnasium's, for a worker of remuda."""

    action_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, make_env: Callable[[], Any]) -> None:
        self._env = make_env()
        shape = tuple(self._env.observation_spec["observation"].shape)
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._env.reset()["observation"].numpy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        actions = tensordict.TensorDict({"action": torch.from_numpy(np.array(action))}, [])
        found = self._env.step(actions)["next"]
        return found["observation"].numpy(), float(found["reward"]), bool(found["terminated"]), False, {}


class RemudaEnvPool:
    """A `remuda.Pool` with the methods of AsyncEnvPool that the benchmark calls. The options are AsyncEnvPool's."""

    def __init__(self, env_makers: Sequence[Callable[[], Any]], **_options: Any) -> None:
        env_fns = [functools.partial(TorchRLEnv, make_env) for make_env in env_makers]
        self._pool = remuda.Pool(
            env_fns, num_workers=None, start_method="fork", autoreset="same_step", log_advice=False
        )
        self.num_envs = len(env_fns)

    def reset(self) -> Any:
        return self._started(self._pool.reset(seed=0))

    def async_step_and_maybe_reset_send(self, found: Any) -> None:
        self._pool.send(found["action"].numpy(), found["env_index"].numpy())

    def async_step_and_maybe_reset_recv(self, min_get: int, max_get: int) -> tuple[Any, Any]:
        """Returns the results of steps, and what the next steps begin with."""
        batch = self._pool.recv(min_envs=min_get, max_envs=max_get)
        obs, terminated = np.array(batch.obs), np.array(batch.terminations)
        for row in np.flatnonzero(terminated).tolist():
            obs[row] = batch.infos[row]["final_obs"]
        ends = {name: torch.from_numpy(each)[:, None] for name, each in _ends(terminated).items()}
        reward = torch.from_numpy(np.asarray(batch.rewards, np.float32))[:, None]
        after = {"observation": torch.from_numpy(obs), "reward": reward, **ends}
        stepped = tensordict.TensorDict({"next": tensordict.TensorDict(after, [len(obs)])}, [len(obs)])
        return stepped, self._started(batch)

    def _started(self, batch: Any) -> Any:
        """Returns the tensordict with which steps begin."""
        ends = _ends(np.zeros(len(batch), np.bool_))
        fields = {"observation": np.array(batch.obs), "env_index": np.array(batch.env_ids)}
        tensors = {name: torch.from_numpy(each) for name, each in fields.items()}
        tensors |= {name: torch.from_numpy(each)[:, None] for name, each in ends.items()}
        return tensordict.TensorDict(tensors, [len(batch)])

    def _maybe_shutdown(self) -> None:
        self._pool.close()


def _ends(terminated: Any) -> dict[str, Any]:
    return {"done": terminated, "terminated": terminated, "truncated": np.zeros_like(terminated)}


# -- the benchmark --------------------------------------------------------------------------------------------


class Clock:
    """The fixture `benchmark` that the file's tests call, as pytest-benchmark defines it."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}
        self.seconds: list[float] = []

    def pedantic(
        self, function: Callable[..., Any], args: Sequence[Any], rounds: int, warmup_rounds: int, iterations: int
    ) -> None:
        """Calls the function in rounds and keeps their times, except those of the first ones."""
        for _ in range(warmup_rounds + rounds):
            begin = time.perf_counter()
            for _ in range(iterations):
                function(*args)
            self.seconds.append((time.perf_counter() - begin) / iterations)
        del self.seconds[:warmup_rounds]


def main() -> None:
    options = parse_options(__doc__, workloads=TESTS, rounds=5, more=add_options)
    file = fetched.import_file(SOURCE.fetch(options.source))
    session = Session(options)
    found = list(session.measured(options.only, lambda name: measure(name, file, session)))
    session.publish("published/torchrl_envs", markdown(found, session), (rates for _, rates in found))


def add_options(parser: argparse.ArgumentParser) -> None:
    SOURCE.add_option(parser)


def measure(name: str, file: ModuleType, session: Session) -> Rates:
    pools = {f"AsyncEnvPool, {exchange}": (file.AsyncEnvPool, exchange) for exchange in TESTS[name]}
    pools["remuda"] = (RemudaEnvPool, "")
    turns = {one: functools.partial(turn, name, file, *pool) for one, pool in pools.items()}
    return session.rounds(name, turns)


def turn(name: str, file: ModuleType, pool: type, exchange: str) -> float:
    """Runs a test of the file with this class in the place of AsyncEnvPool. Returns transitions a second."""
    clock = Clock()
    with mock.patch.object(file, "AsyncEnvPool", pool), start_method("fork"):
        getattr(file, f"test_async_env_pool_{name}")(clock, exchange)
    return float(clock.extra_info["transitions"] / mean(clock.seconds))


def markdown(found: Sequence[tuple[str, Rates]], session: Session) -> Iterator[Block]:
    for name, rates in found:
        yield table(["transitions/s", *columns(rates)], [[name, *cells(rates)]])
    if found:
        yield conditions(session.options.rounds)


if __name__ == "__main__":
    main()
