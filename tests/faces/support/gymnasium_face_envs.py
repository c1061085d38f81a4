"""Envs for the tests of the Gymnasium face, and a strict comparison of results."""

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


def assert_identical(ours: Any, expected: Any, where: str = "result") -> None:
    """Compares types, dtypes, shapes and bits of all leaves."""
    assert type(ours) is type(expected), f"{where}: {type(ours)} is not {type(expected)}"
    if isinstance(ours, dict):
        assert ours.keys() == expected.keys(), where
        for key in ours:
            assert_identical(ours[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(ours, (tuple, list)):
        assert len(ours) == len(expected), where
        for i, (one, other) in enumerate(zip(ours, expected, strict=True)):
            assert_identical(one, other, f"{where}[{i}]")
    elif isinstance(ours, np.ndarray):
        assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape), where
        if ours.dtype == object:
            assert_identical(ours.tolist(), expected.tolist(), where)
        else:
            assert ours.tobytes() == expected.tobytes(), f"{where}: {ours} is not {expected}"
    else:
        assert ours == expected, where


class SpaceEnv(gymnasium.Env[Any, Any]):
    """Observes seeded samples of a space. Episodes end at random, and infos have values of every kind."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 7}

    def __init__(self, space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> None:
        # envs in one process would otherwise share the space's random numbers
        self.observation_space = copy.deepcopy(space)
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.render_mode = "rgb_array"
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {"seeded": seed is not None, "options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        chance = self.np_random.random()
        info = {
            "steps": self.steps,
            "chance": chance,
            "small": np.float32(chance),
            "vector": np.arange(3) * self.steps,
            "nested": {"even": self.steps % 2 == 0, "word": "x" * self.steps},
        }
        if chance < 0.5:
            info["sometimes"] = self.steps
        return self.observation_space.sample(), chance * 3, chance < 0.1, 0.1 <= chance < 0.2, info

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.steps, dtype=np.uint8)


class EchoEnv(gymnasium.Env[Any, Any]):
    """Keeps the last action and options. Its episodes have ``length`` steps."""

    def __init__(self, action_space: spaces.Space[Any] | None = None, length: int = 1_000_000) -> None:
        self.observation_space = spaces.Box(0, 1000, (1,), np.int64)
        self.action_space = spaces.Discrete(10) if action_space is None else action_space
        self.length = length
        self.episodes = 0
        self.steps = 0
        self.options: dict[str, Any] | None = None
        self.last_action: Any = None

    def _observe(self) -> np.ndarray:
        return np.array([100 * self.episodes + self.steps])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes += 1
        self.steps = 0
        self.options = options
        return self._observe(), {"episode_number": self.episodes}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.last_action = action
        return self._observe(), float(self.steps), self.steps >= self.length, False, {}

    def pid(self) -> int:
        return os.getpid()

    def add(self, left: int, right: int = 0, *, prefix: str = "") -> str:
        return f"{prefix}{left + right}"


class ClockedEnv(EchoEnv):
    """Records the time of its last ``step``: ``clock`` is (begin, end) of the monotonic clock, in seconds."""

    clock = (0.0, 0.0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        begin = time.monotonic()
        sum(range(20_000))
        outcome = super().step(action)
        self.clock = begin, time.monotonic()
        return outcome


class Gate:
    """A gate made of a named pipe: a worker waits at it until the test opens it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(self.path)

    def wait(self) -> None:
        """Waits in the worker until the test opens the gate."""
        with open(self.path) as pipe:
            pipe.read()

    def open(self) -> None:
        """Waits in the test until a worker is at the gate, and lets it pass."""
        with open(self.path, "w"):
            pass


class GatedEnv(EchoEnv):
    """Waits at its gate in the named method."""

    def __init__(self, gate: Gate | None, where: str = "step") -> None:
        super().__init__()
        self.gate = gate
        self.where = where

    def _pass(self, where: str) -> None:
        if self.gate is not None and where == self.where:
            self.gate.wait()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._pass("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._pass("step")
        return super().step(action)

    def pid(self) -> int:
        self._pass("call")
        return super().pid()


def gated(gates: list[Gate | None], where: str) -> list[Callable[[], GatedEnv]]:
    return [lambda gate=gate: GatedEnv(gate, where) for gate in gates]  # type: ignore[misc]


class TwoArgumentsError(Exception):
    """An exception that needs two arguments."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class UnpicklableError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


FAULTS: dict[str, Callable[[], None]] = {}


def fault(function: Callable[[], None]) -> Callable[[], None]:
    FAULTS[function.__name__] = function
    return function


@fault
def plain() -> None:
    raise ValueError("100% wrong")


@fault
def two_arguments() -> None:
    raise TwoArgumentsError(7, "seven")


@fault
def unpicklable() -> None:
    raise UnpicklableError("holds a lock")


@fault
def local_class() -> None:
    class LocalError(RuntimeError):
        pass

    raise LocalError("known here only")


@fault
def chained() -> None:
    try:
        raise KeyError("inner")
    except KeyError as inner:
        raise RuntimeError("outer") from inner


@fault
def sys_exit() -> None:
    sys.exit(3)


@fault
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@fault
def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


class FaultyEnv(EchoEnv):
    """Has the named accident in one method: "build", "reset", "step", "call" or "close"."""

    def __init__(self, where: str = "", what: str = "plain") -> None:
        super().__init__()
        self.where = where
        self.what = what
        self._maybe_fail("build")

    def _maybe_fail(self, where: str) -> None:
        if where == self.where:
            FAULTS[self.what]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._maybe_fail("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._maybe_fail("step")
        return super().step(action)

    def pid(self) -> int:
        self._maybe_fail("call")
        return super().pid()

    def close(self) -> None:
        self._maybe_fail("close")


def faulty(where: str, what: str, num_envs: int = 3, which: tuple[int, ...] = (1,)) -> list[Callable[[], FaultyEnv]]:
    return [
        (lambda: FaultyEnv(where, what)) if i in which else FaultyEnv  # type: ignore[misc]
        for i in range(num_envs)
    ]


class ColourSpace(spaces.Space[str]):
    """A space class that Gymnasium has no functions for."""

    COLOURS = ("red", "green", "blue")

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return self.COLOURS[int(self.np_random.integers(3))]

    def contains(self, x: Any) -> bool:
        return x in self.COLOURS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColourSpace)

    __hash__ = None  # type: ignore[assignment]  # like Gymnasium's spaces
