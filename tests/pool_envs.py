"""Small envs for the tests of the pool, gates that order events, and comparisons of results.

Workers import this module by name, since pytest puts this folder on `sys.path`, which workers inherit. They cannot
import test modules, so that objects that are pickled by name are defined here. The name `envs` belongs to the
benchmarks.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda import Batch, Pool

Info: TypeAlias = dict[str, Any]
StepResult: TypeAlias = tuple[Any, Any, Any, Any, Info]
EnvFn: TypeAlias = Callable[[], Any]
Hook: TypeAlias = Callable[..., Any]


# -- comparing -------------------------------------------------------------------------------------------


def assert_same_leaf(got: Any, expected: Any, where: str) -> None:
    """Asserts the same dtype, shape and bits of two arrays or NumPy scalars, or that two other objects are equal."""
    if isinstance(got, (np.ndarray, np.generic)):
        _assert_same_array(got, expected, where)
    else:
        assert got == expected or (got != got and expected != expected), f"{where}: {got!r} is not {expected!r}"


def assert_same(
    got: Any, expected: Any, where: str = "result", leaf: Callable[[Any, Any, str], None] = assert_same_leaf
) -> None:
    """Asserts the same structure and types at every depth, and compares the leaves with `leaf`.

    Exception: of two names for a dtype (long, long long), pickling keeps one.
    """
    if not (isinstance(got, np.generic) and isinstance(expected, np.generic)):  # the dtypes are compared below
        assert type(got) is type(expected), f"{where}: {type(got)} is not {type(expected)}"
    if isinstance(got, dict):
        assert set(got) == set(expected), where
        for key, value in got.items():
            assert_same(value, expected[key], f"{where}[{key!r}]", leaf)
    elif isinstance(got, (tuple, list)):
        assert len(got) == len(expected), where
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_same(a, b, f"{where}[{i}]", leaf)
    else:
        leaf(got, expected, where)


def _assert_same_array(got: Any, expected: Any, where: str) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), f"{where}: {got.dtype} {expected.dtype}"
    if got.dtype.hasobject:
        assert_same(got.tolist(), expected.tolist(), where)
    elif got.dtype in (np.longdouble, np.clongdouble):  # padding bytes may differ
        np.testing.assert_array_equal(got, expected, where)
    else:
        assert got.tobytes() == expected.tobytes(), f"{where}: {got} is not {expected}"


def rewards(batch: Batch) -> dict[int, float]:
    assert len(set(batch.env_ids.tolist())) == len(batch)
    return dict(zip(batch.env_ids.tolist(), batch.rewards.tolist(), strict=True))


def begun(env_fns: Sequence[EnvFn], seed: int | None = None, **options: Any) -> Pool:
    """Returns a pool of envs that have been reset. By default each has a worker."""
    pool = Pool(env_fns, **{"num_workers": None, **options})
    pool.reset(seed=seed)
    return pool


# -- ordering events -------------------------------------------------------------------------------------


class Gate:
    """A door at which an env waits until the test opens it, in any process or thread, made of two named pipes.

    In another program, `gate = {gate!r}` gives the same gate.
    """

    def __init__(self, directory: Path | str, name: str = "gate") -> None:
        self._place = str(directory), name
        self.arrivals, self.door = f"{directory}/{name}.arrivals", f"{directory}/{name}.door"
        for pipe in (self.arrivals, self.door):
            with suppress(FileExistsError):
                os.mkfifo(pipe)

    def __repr__(self) -> str:
        return f"Gate{self._place}"

    def wait(self) -> None:
        """Called by the env: announces its arrival and waits until the test opens the door."""
        _meet(self.arrivals, os.O_WRONLY)
        _meet(self.door, os.O_RDONLY)

    def await_arrival(self) -> None:
        """Called by the test: waits until an env has arrived at the door."""
        _meet(self.arrivals, os.O_RDONLY)

    def open(self) -> None:
        """Called by the test after `await_arrival`: lets that env pass."""
        _meet(self.door, os.O_WRONLY)

    def let_pass(self) -> None:
        self.await_arrival()
        self.open()


def make_gates(directory: Path, n: int) -> list[Gate]:
    return [Gate(directory, f"gate{i}") for i in range(n)]


def _meet(path: str, mode: int) -> None:
    """Opens and closes a pipe. Opening waits for the other side."""
    fd = os.open(path, mode)
    if mode == os.O_RDONLY:
        os.read(fd, 1)  # until the writer closes its end, so that the next call is a new meeting
    os.close(fd)


class Diary:
    """A file to which envs of all processes append lines."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        path.touch()

    def note(self, *words: Any) -> None:
        with open(self._path, "ab", buffering=0) as file:  # the kernel serialises appended writes
            file.write(" ".join(map(str, words)).encode() + b"\n")

    def lines(self) -> list[str]:
        return Path(self._path).read_text().splitlines()


class Gauge(Diary):
    """Counts entries and exits of several processes in a shared file."""

    def enter(self) -> None:
        self.note("+1")

    def leave(self) -> None:
        self.note("-1")

    def entries(self) -> int:
        return self.lines().count("+1")

    def peak(self) -> int:
        """Returns the highest number of simultaneous entries."""
        return max(itertools.accumulate(map(int, self.lines()), initial=0))


# -- envs ------------------------------------------------------------------------------------------------


class CountingEnv(gymnasium.Env[Any, Any]):
    """Observes (tag, episodes, steps, last action). The reward is the action."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, tag: int = 0, length: int = 1_000_000) -> None:
        self.observation_space = spaces.Box(-(2**40), 2**40, (4,), np.int64)
        self.action_space = spaces.Discrete(1000)
        self.tag, self.length = tag, length
        self.episodes = self.steps = self.total_steps = 0
        self.last_action = -1
        self.last_options: Info | None = None
        self.last_seed: int | None = None

    def observe(self) -> Any:
        return np.array([self.tag, self.episodes, self.steps, self.last_action])

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.last_seed, self.last_options = seed, options
        self.episodes += 1
        self.steps, self.last_action = 0, -1
        return self.observe(), {}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        self.total_steps += 1
        self.last_action = int(action)
        return self.observe(), float(action), self.steps >= self.length, False, {}

    def render(self) -> Any:
        return np.full((2, 2, 3), self.tag, dtype=np.uint8)

    def pid(self) -> int:
        return os.getpid()

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


class HookedEnv(CountingEnv):
    """A CountingEnv with a hook for each phase: build, reset, step, autoreset, call, render, close.

    A hook is called with the env, and for a step also with the action. A result other than None replaces the result of
    the method; `NOTHING` stands for None. `autoreset` is any reset after the first.
    """

    def __init__(self, tag: int = 0, length: int = 1_000_000, **hooks: Hook) -> None:
        super().__init__(tag, length)
        self.hooks = hooks
        self._run("build")

    def _run(self, phase: str, *args: Any) -> Any:
        return self.hooks[phase](self, *args) if phase in self.hooks else None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        usual = super().reset(seed=seed, options=options)
        result: tuple[Any, Info] = _choose(self._run("reset" if self.episodes == 1 else "autoreset"), usual)
        return result

    def step(self, action: Any) -> StepResult:
        usual = super().step(action)
        result: StepResult = _choose(self._run("step", action), usual)
        return result

    def render(self) -> Any:
        return _choose(self._run("render"), super().render())

    def poke(self) -> Any:
        return _choose(self._run("call"), "poked")

    def close(self) -> None:
        self._run("close")


class DrawingEnv(HookedEnv):
    """A HookedEnv that renders a picture in a colour that depends on its tag."""

    render_mode = "rgb_array"


class LevelEnv(HookedEnv):
    """Observes (tag, episodes, steps, level). The level comes from the reset options, and is -1 without them."""

    def observe(self) -> Any:
        return np.array([self.tag, self.episodes, self.steps, (self.last_options or {}).get("level", -1)])


class DiceEnv(gymnasium.Env[Any, Any]):
    """An env with random observations, rewards and episode lengths. Actions have no effect."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), np.float64)
        self.action_space = spaces.Discrete(1000)
        self.last_seed: int | None = None
        self.info: Info = {}  # always the same dict

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.last_seed = seed
        return self.np_random.random(2), self.info

    def step(self, action: Any) -> StepResult:
        obs, (chance, cut) = self.np_random.random(2), self.np_random.random(2)
        return obs, float(chance), bool(chance < 0.2), bool(cut < 0.1), self.info


NOTHING = "nothing"


def _choose(replacement: Any, usual: Any) -> Any:
    if isinstance(replacement, str) and replacement == NOTHING:
        return None
    return usual if replacement is None else replacement


def counting(num_envs: int, length: int = 1_000_000) -> list[EnvFn]:
    return [(lambda tag=i: CountingEnv(tag, length)) for i in range(num_envs)]  # type: ignore[misc]


def hooked(
    num_envs: int, which: Sequence[int] = (1,), length: int = 1_000_000, kind: Any = HookedEnv, **hooks: Hook
) -> list[EnvFn]:
    """Returns factories of envs, of which those in `which` have the hooks."""
    return [(lambda tag=i: kind(tag, length, **(hooks if tag in which else {}))) for i in range(num_envs)]  # type: ignore[misc]


drawing = partial(hooked, kind=DrawingEnv)  # factories of envs that render


def levelled(num_envs: int, length: int = 1_000_000, **hooks: Hook) -> list[EnvFn]:
    return hooked(num_envs, range(num_envs), length, LevelEnv, **hooks)


def gated(gates: Sequence[Gate | None], phase: str = "step") -> list[EnvFn]:
    """Returns factories of envs that wait at their gate in that phase."""
    return [_gated(tag, gate, phase) for tag, gate in enumerate(gates)]


def _gated(tag: int, gate: Gate | None, phase: str) -> EnvFn:
    hooks: Any = {} if gate is None else {phase: lambda *_: gate.wait()}
    return lambda: HookedEnv(tag, **hooks)


class SampleEnv(gymnasium.Env[Any, Any]):
    """Observes samples of a space, and returns its action in the info."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        # copies, because envs in one process would share their spaces' random numbers
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = copy.deepcopy(action_space)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> StepResult:
        chance = float(self.np_random.random())
        info = {"action": (action,), "types": describe_types(action)}
        return self.observation_space.sample(), chance, chance < 0.2, 0.2 <= chance < 0.4, info


def describe_types(value: Any) -> str:
    """Returns the types in a nested value, with the dtypes and shapes of its arrays."""
    if isinstance(value, dict):
        return f"{type(value).__name__}({', '.join(f'{k}={describe_types(value[k])}' for k in sorted(value))})"
    if type(value) in (tuple, list):
        return f"{type(value).__name__}({', '.join(map(describe_types, value))})"
    array = isinstance(value, (np.ndarray, np.generic))
    return f"{type(value).__name__}{f' {value.dtype}{value.shape}' if array else ''}"


class ColourSpace(spaces.Space[str]):
    """A space of a class unknown to Gymnasium."""

    COLOURS = ("red", "green", "blue")

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return self.COLOURS[int(self.np_random.integers(3))]

    def contains(self, x: Any) -> bool:
        return x in self.COLOURS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColourSpace)

    def __hash__(self) -> int:
        return hash(ColourSpace)


class NestedEnv(gymnasium.Env[Any, Any]):
    """Observes nested dicts and tuples of arrays. With `reuse` it returns the same arrays in each step."""

    def __init__(self, length: int = 7, reuse: bool = False) -> None:
        self.observation_space = spaces.Dict(
            image=spaces.Box(0, 255, (3, 4), np.uint8),
            pose=spaces.Tuple((spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(50))),
            deep=spaces.Dict(flags=spaces.MultiBinary(3), choice=spaces.MultiDiscrete([5, 6])),
        )
        self.action_space = spaces.Dict(
            push=spaces.Box(-1, 1, (2,), np.float32), keys=spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2)))
        )
        self.length, self.reuse, self.steps = length, reuse, 0
        self._make_buffers()

    def _make_buffers(self) -> None:
        self._image = np.zeros((3, 4), np.uint8)
        self._position = np.zeros(2)

    def _observe(self) -> Any:
        if not self.reuse:
            self._make_buffers()
        self._image[:] = self.np_random.integers(0, 256, (3, 4))
        self._position[:] = self.np_random.uniform(-9, 9, 2)
        deep = {"flags": self.np_random.integers(0, 2, 3).astype(np.int8), "choice": self.np_random.integers(0, 5, 2)}
        return {"image": self._image, "pose": (self._position, int(self.np_random.integers(50))), "deep": deep}

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {"start": True}

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        total = float(action["push"].sum()) + int(action["keys"][0]) + int(action["keys"][1].sum())
        ends = self.steps >= self.length + int(self.np_random.integers(3))
        cut = bool(self.np_random.random() < 0.05)
        obs = self._observe()
        info = {"action": describe_types(action), "position": self._position, "total": np.float32(total)}
        return obs, total, ends, cut, info


class InfoEnv(gymnasium.Env[Any, Any]):
    """An env that computes its infos by a function of its tag and its number of resets and steps."""

    def __init__(self, tag: int, info: Callable[[int, int], Info], length: int = 5) -> None:
        self.observation_space = spaces.Discrete(1_000_000)
        self.action_space = spaces.Discrete(2)
        self.tag, self.info, self.length = tag, info, length
        self.count = self.steps = 0

    def _result(self) -> tuple[Any, Info]:
        self.count += 1
        return np.int64(self.count), self.info(self.tag, self.count)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.steps = 0
        return self._result()

    def step(self, action: Any) -> StepResult:
        self.steps += 1
        obs, info = self._result()
        return obs, 1.0, self.steps == self.length + self.tag, False, info


def with_infos(num_envs: int, info: Callable[[int, int], Info], length: int = 5) -> list[EnvFn]:
    return [(lambda tag=i: InfoEnv(tag, info, length)) for i in range(num_envs)]  # type: ignore[misc]


class TextEnv(gymnasium.Env[Any, Any]):
    """An env with texts as observations and actions, which are pickled. It observes its action `times` times."""

    def __init__(self, times: int = 1) -> None:
        self.observation_space = spaces.Text(2**30)
        self.action_space = spaces.Text(2**30)
        self.times = times

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        return str((options or {}).get("text", "")), {}

    def step(self, action: Any) -> StepResult:
        return action * self.times, float(len(action)), False, False, {}

    def repeat(self, data: Any) -> Any:
        return data
