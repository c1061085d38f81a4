"""Envs for the tests of the DI-engine face, and helpers that run its managers beside DI-engine's."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

with warnings.catch_warnings():  # DI-engine imports deprecated modules
    warnings.simplefilter("ignore")
    pytest.importorskip("ding", reason="DI-engine has an environment of its own: make ding-test")
    import ding.envs as ding_envs
    from ding.envs.env_manager.base_env_manager import EnvState
    from easydict import EasyDict

    import remuda.ding as ours

PAIRS = {
    name: (getattr(ours, name), getattr(ding_envs, name))
    for name in ("AsyncSubprocessEnvManager", "SyncSubprocessEnvManager", "SubprocessEnvManagerV2")
}

BOX = spaces.Box(-10.0, 10.0, (3,), np.float32)
SPACES: dict[str, Any] = {
    "box": BOX,
    "pixels": spaces.Box(0, 255, (2, 4), np.uint8),
    "dict": spaces.Dict([("z", BOX), ("a", spaces.Box(0, 9, (2,), np.int64))]),
    "scalar": spaces.Box(-10.0, 10.0, (), np.float32),
}
REWARDS: dict[str, Callable[[float], Any]] = {
    "array": lambda x: np.array([x], np.float32),
    "double": lambda x: np.array([x, -x]),
    "float": float,
    "scalar": np.float64,
    "dict": lambda x: {"left": np.float32(x), "right": [1, x]},
}


class DriftEnv:
    """Observes seeded noise. Its episodes last 2 to 5 steps, and its infos have values of every kind."""

    def __init__(self, space: str = "box", reward: str = "array", wide: bool = False) -> None:
        self.observation_space = SPACES[space]
        self.action_space = spaces.Discrete(3)
        self.reward_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._reward, self._wide = REWARDS[reward], wide
        self.random = np.random.RandomState(7)
        self.seeds: list[tuple[Any, ...]] = []
        self.resets: list[dict[str, Any]] = []
        self.replays: list[str] = []
        self.pid, self.steps = os.getpid(), 0

    def seed(self, seed: int, dynamic_seed: bool | None = None) -> None:
        self.seeds.append((seed, dynamic_seed))
        self.random = np.random.RandomState(seed)

    def reset(self, **param: Any) -> Any:
        self.resets.append(param)
        self.steps, self.length = 0, self.random.randint(2, 6)
        return self._obs(self.observation_space)

    def step(self, action: Any) -> Any:
        self.steps += 1
        info: dict[str, Any] = {"steps": self.steps, "TimeLimit.truncated": False, "text": "x", "1st": np.arange(3)}
        if isinstance(action, str) and action == "spoil":
            return ding_envs.BaseEnvTimestep(None, None, True, {"abnormal": True, "why": "asked to"})
        info["action"] = action
        done = self.steps >= self.length
        if done:
            info["eval_episode_return"] = np.float32(self.steps)
        reward = self._reward(self.random.rand())
        return ding_envs.BaseEnvTimestep(self._obs(self.observation_space), reward, done, info)

    def _obs(self, space: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._obs(part) for key, part in space.spaces.items()}
        noise = self.random.rand(*space.shape) * 9
        return np.asarray(noise if self._wide and space.dtype == np.float32 else np.asarray(noise).astype(space.dtype))

    def enable_save_replay(self, path: str) -> None:
        self.replays.append(path)

    def enable_save_figure(self, path: str) -> None:
        self.replays.append(f"figure {path}")

    def reward_shaping(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**transition, "shaped": self.pid} for transition in transitions]

    def method(self) -> None:
        """A method that is missing in ``method_name_list``."""

    def close(self) -> None:
        pass


class Detailed(NamedTuple):
    """A timestep class with a field that DI-engine's does not have."""

    obs: Any
    reward: Any
    done: bool
    info: dict[str, Any]
    detail: str


ODDITIES: dict[str, Callable[[Any], Any]] = {
    "done of numpy": lambda t: t._replace(done=np.bool_(t.done)),
    "done is an int": lambda t: t._replace(done=int(t.done)),
    "no reward": lambda t: t._replace(reward=None),
    "an info with attributes": lambda t: t._replace(info=EasyDict(nested={"x": 1}, **t.info)),
    "an info of an info": lambda t: t._replace(info={"nested": {"a.b": np.float32(1), "empty": {}}}),
    "a class of its own": lambda t: Detailed(*t, detail="mine"),
}


class OddEnv(DriftEnv):
    """Returns timesteps with an unusual class or field."""

    def __init__(self, oddity: str, space: str = "box") -> None:
        super().__init__(space)
        self._make_odd = ODDITIES[oddity]

    def step(self, action: Any) -> Any:
        return self._make_odd(super().step(action))


class GlobalEnv(DriftEnv):
    """Draws from NumPy's global generator and seeds it, as DI-engine's envs do."""

    def seed(self, seed: int, dynamic_seed: bool | None = None) -> None:
        np.random.seed(seed)

    def reset(self, **param: Any) -> Any:
        self.random = np.random.RandomState(np.random.randint(1000))
        return super().reset(**param)

    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        return timestep._replace(reward=np.random.rand())


class NeedsTwoError(Exception):
    """An exception with a constructor of two arguments."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


def value_error() -> None:
    raise ValueError("100% wrong")


def needs_two() -> None:
    raise NeedsTwoError(7, "seven")


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def sleep() -> None:
    time.sleep(1000)


def sleep_in_native_code() -> None:
    """Blocks SIGALRM and sleeps with the GIL held."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    ctypes.PyDLL(None).sleep(1000)


def exit_python() -> None:
    sys.exit(3)


class FaultyEnv(DriftEnv):
    """Has an accident in call number ``at`` of the named phase, and also in all later calls if ``every``."""

    def __init__(self, phase: str, accident: Callable[[], None], at: int = 0, every: bool = True) -> None:
        super().__init__()
        self._phase, self._accident, self._at, self._every = phase, accident, at, every
        self._times = {"reset": 0, "step": 0, "close": 0}

    def _run_phase(self, phase: str) -> None:
        times = self._times[phase]
        self._times[phase] += 1
        if phase == self._phase and (times == self._at or (self._every and times > self._at)):
            self._accident()

    def reset(self, **param: Any) -> Any:
        self._run_phase("reset")
        return super().reset(**param)

    def step(self, action: Any) -> Any:
        self._run_phase("step")
        return super().step(action)

    def close(self) -> None:
        self._run_phase("close")


class Unlucky(DriftEnv):
    """Has an accident in the named phase, except in the manager's own process, which builds a reference env."""

    def __init__(self, phase: str, accident: Callable[[], Any], parent: int) -> None:
        super().__init__()
        self._phase, self._accident, self._parent, self._resets = phase, accident, parent, 0
        self._run_phase("build")

    def _run_phase(self, phase: str) -> None:
        if phase == self._phase and os.getpid() != self._parent:
            faulthandler.disable()  # forked from a test, the env would print a traceback at each death
            self._accident()

    def reset(self, **param: Any) -> Any:
        self._resets += 1
        self._run_phase("reset" if self._resets == 1 else "background")
        return super().reset(**param)

    def step(self, action: Any) -> Any:
        self._run_phase("step")
        return super().step(action)

    @property
    def mood(self) -> str:
        self._run_phase("call")
        return "good"

    def close(self) -> None:
        self._run_phase("close")


def with_a_faulty_one(phase: str, accident: Callable[[], None], **when: Any) -> list[Callable[[], Any]]:
    """Returns factories of three envs. Only the middle one is faulty."""
    return [DriftEnv, partial(FaultyEnv, phase, accident, **when), DriftEnv]


def config(manager: Any, **changes: Any) -> Any:
    """Returns the manager's default config with these changes."""
    merged = manager.default_config()
    merged.update(changes)
    return merged


def settled(manager: Any) -> Any:
    """Polls the manager until no env is resetting, and returns it. DI-engine's reset threads do not notify."""
    while EnvState.RESET in manager._env_states.values():
        manager.ready_obs_id  # noqa: B018  # our manager completes resets here
        time.sleep(0.001)
    return manager


def close(manager: Any) -> None:
    """Closes the manager and reaps the processes of DI-engine's, which does not join them."""
    manager.close()
    reap()


def reap() -> None:
    for process in multiprocessing.active_children():
        process.join()


def unlaunched(env_fns: Any, manager_cls: Any = ours.SyncSubprocessEnvManager, **changes: Any) -> Any:
    return manager_cls(env_fns, config(manager_cls, **changes))


def launched(env_fns: Any, manager_cls: Any = ours.SyncSubprocessEnvManager, **changes: Any) -> Any:
    manager = unlaunched(env_fns, manager_cls, **changes)
    manager.launch()
    return manager


def assert_closed(manager: Any) -> None:
    """Checks that the manager is closed, and that a second close and a step do not reopen it."""
    assert manager.closed
    assert set(manager._env_states.values()) == {EnvState.VOID}
    manager.close()
    with pytest.raises(AssertionError, match="closed"):
        manager.step({0: 0})


def step_until_it_fails(manager: Any) -> None:
    while True:
        manager.step(dict.fromkeys(manager.ready_obs, 0))
