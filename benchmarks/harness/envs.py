"""The envs of the benchmarks: each isolates one cost.

CPU work is a number of iterations, calibrated once in the parent and handed to every env. It is not a duration, because
then a worker that loses its core in the middle of a step would have less work.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import timeit
from collections.abc import Callable
from statistics import median
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from remuda._bench.workloads import EnvFactory, Workload

Info: TypeAlias = dict[str, Any]
Step: TypeAlias = tuple[Any, float, bool, bool, Info]

EPISODE_STEPS = 200
INFO_KEYS = tuple(f"metric_{index}" for index in range(8))


def work(iterations: int) -> int:
    """Keeps a core busy with this number of loop iterations."""
    state = 1
    for _ in range(iterations):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    return state


@functools.cache
def iterations_for(seconds: float) -> int:
    """Returns the number of iterations of `work` that take about ``seconds`` on this machine if nothing else runs."""
    trial = 20_000
    cost = median(timeit.repeat(lambda: work(trial), number=1, repeat=25)) / trial
    return max(1, round(seconds / cost))


class FixedEnv(gymnasium.Env[Any, Any]):
    """An env that returns the same observation, after a fixed amount of work, in episodes of a fixed length."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space: spaces.Space[Any], iterations: int = 0) -> None:
        self.observation_space = observation_space
        observation_space.seed(0)
        self._obs = observation_space.sample()
        self._iterations = iterations
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._obs, {}

    def step(self, action: Any) -> Step:
        if self._iterations:
            work(self._iterations)
        self._steps += 1
        return self._obs, 1.0, False, self._steps >= EPISODE_STEPS, {}


class NullEnv(gymnasium.Env[Any, Any]):
    """An env with CartPole's spaces. Steps return at once and episodes never end, so all steps cost the same."""

    metadata: ClassVar[Info] = {}
    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self) -> None:
        self._obs: Any = np.zeros_like(self.observation_space.sample())

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        return self._obs, {}

    def step(self, action: Any) -> Step:
        return self._obs, 1.0, False, False, {}


class MetricsCartPole(CartPoleEnv):
    """CartPole that reports eight numbers in every info, as a robot's or a game's env does."""

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        position = float(obs[0])
        info.update((key, position + index) for index, key in enumerate(INFO_KEYS))
        return obs, float(reward), terminated, truncated, info


class TalkativeCartPole(CartPoleEnv):
    """CartPole with 20 kB of text in every info: more for a batch than a worker's shared memory for pickled data."""

    text = "the pole leans to the left and the cart moves on. " * 400

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        return obs, float(reward), terminated, truncated, {**info, "text": self.text}


VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (64, 64, 3), np.uint8),
        "robot": spaces.Dict(
            {
                "joints": spaces.Box(-1.0, 1.0, (12,), np.float32),
                "contact": spaces.MultiBinary(4),
                "goal": spaces.Tuple((spaces.Discrete(5), spaces.Box(-1.0, 1.0, (3,), np.float64))),
            }
        ),
    }
)


def fixed(space: spaces.Space[Any], iterations: int = 0) -> EnvFactory:
    return functools.partial(FixedEnv, space, iterations)


def pong() -> gymnasium.Env[Any, Any]:
    """Pong with the usual preprocessing: every fourth frame, grey, 84 x 84, the last four stacked."""
    gymnasium.register_envs(importlib.import_module("ale_py"))
    env = gymnasium.make("ALE/Pong-v5", frameskip=1)
    return FrameStackObservation(AtariPreprocessing(env), 4)


MUJOCO = ("mujoco", "gymnasium[mujoco]")
NEEDS = {"mujoco": MUJOCO, "ant": MUJOCO, "pong": ("ale_py", "gymnasium[atari,other]")}
"""The module that a workload needs, and the package that pip installs it from."""


def missing(name: str) -> str | None:
    """Returns the workload's name and the command that installs its package. None if the package is installed."""
    module, package = NEEDS.get(name, ("gymnasium", ""))
    return f'{name}: pip install "{package}"' if importlib.util.find_spec(module) is None else None


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "cartpole": lambda: Workload("CartPole-v1", functools.partial(gymnasium.make, "CartPole-v1")),
    "null": lambda: Workload("null env: Box(4), returns at once", fixed(VECTOR)),
    "image": lambda: Workload("(4, 84, 84) uint8, 100 us of CPU work", fixed(IMAGE, iterations_for(100e-6))),
    "heavy": lambda: Workload("Box(4), 1 ms of CPU work", fixed(VECTOR, iterations_for(1e-3))),
    "mujoco": lambda: Workload("HalfCheetah-v5", functools.partial(gymnasium.make, "HalfCheetah-v5")),
    "ant": lambda: Workload("Ant-v5", functools.partial(gymnasium.make, "Ant-v5")),
    "pong": lambda: Workload("ALE/Pong-v5, preprocessed", pong),
    "dict": lambda: Workload("nested Dict with an image, returns at once", fixed(NESTED)),
    "infos": lambda: Workload("CartPole, 8 numeric info keys", MetricsCartPole),
    "text": lambda: Workload("CartPole, 20 kB of text in infos", TalkativeCartPole),
}
