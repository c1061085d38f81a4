"""Envs for the tests of the DI-engine face, and helpers that run its managers beside DI-engine's."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import time
import warnings
from collections import Counter
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

PARENT = os.getpid()
Hook = Callable[..., Any]

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


class Detailed(NamedTuple):
    """A timestep class with a field that DI-engine's does not have."""

    obs: Any
    reward: Any
    done: bool
    info: dict[str, Any]
    detail: str


ODDITIES: dict[str, Callable[[Any], Any]] = {
    "none": lambda t: t,
    "done of numpy": lambda t: t._replace(done=np.bool_(t.done)),
    "done is an int": lambda t: t._replace(done=int(t.done)),
    "no reward": lambda t: t._replace(reward=None),
    "an info with attributes": lambda t: t._replace(info=EasyDict(nested={"x": 1}, **t.info)),
    "an info of an info": lambda t: t._replace(info={"nested": {"a.b": np.float32(1), "empty": {}}}),
    "a class of its own": lambda t: Detailed(*t, detail="mine"),
    "an info that is invalid": lambda t: t._replace(info=[1, 2]),
}


class DriftEnv:
    """Observes seeded noise. Its infos have values of every kind.

    Args:
        space: The name of the observation space.
        reward: The name of the form of rewards.
        oddity: The name of a change of all timesteps.
        wide: Whether observations have more bits than their space.
        length: The number of steps in an episode; 0: between 2 and 5.
        hooks: Functions that are called with the env in the phases build, reset (the first one), background (later
            resets), step, call and close. In the manager's own process, which builds one env and reads its attributes,
            the hooks of build and call do not run.
    """

    def __init__(
        self,
        space: str = "box",
        reward: str = "array",
        oddity: str = "none",
        *,
        wide: bool = False,
        length: int = 0,
        **hooks: Hook,
    ) -> None:
        self.observation_space = SPACES[space]
        self.action_space = spaces.Discrete(3)
        self.reward_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._reward, self._odd, self._wide = REWARDS[reward], ODDITIES[oddity], wide
        self._length, self._hooks = length, hooks
        self._env = self  # DI-engine renders the `_env` of an env
        self.random = np.random.RandomState(7)
        self.seeds: list[tuple[Any, ...]] = []
        self.resets: list[dict[str, Any]] = []
        self.replays: list[str] = []
        self.calls: Counter[str] = Counter()
        self.pid, self.steps = os.getpid(), 0
        self._run("build")

    def _run(self, phase: str) -> None:
        self.calls[phase] += 1
        if phase in self._hooks and (os.getpid() != PARENT or phase not in ("build", "call")):
            faulthandler.disable()  # otherwise a forked env would print a traceback at each death
            self._hooks[phase](self)

    def seed(self, seed: int, dynamic_seed: bool | None = None) -> None:
        self.seeds.append((seed, dynamic_seed))
        self.random = np.random.RandomState(seed)

    def reset(self, **param: Any) -> Any:
        self._run("background" if self.calls["reset"] else "reset")
        self.resets.append(param)
        self.steps, self.length = 0, self._length or self.random.randint(2, 6)
        return self._obs(self.observation_space)

    def step(self, action: Any) -> Any:
        self.action = action
        self._run("step")
        self.steps += 1
        info: dict[str, Any] = {"steps": self.steps, "TimeLimit.truncated": False, "text": "x", "1st": np.arange(3)}
        if isinstance(action, str) and action == "spoil":
            return ding_envs.BaseEnvTimestep(None, None, True, {"abnormal": True, "why": "asked to"})
        info["action"] = action
        done = self.steps >= self.length
        if done:
            info["eval_episode_return"] = np.float32(self.steps)
        reward = self._reward(self.random.rand())
        return self._odd(ding_envs.BaseEnvTimestep(self._obs(self.observation_space), reward, done, info))

    def _obs(self, space: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._obs(part) for key, part in space.spaces.items()}
        noise = self.random.rand(*space.shape) * 9
        return np.asarray(noise if self._wide and space.dtype == np.float32 else np.asarray(noise).astype(space.dtype))

    @property
    def mood(self) -> str:
        self._run("call")
        return "good"

    def render(self, mode: str = "rgb_array") -> Any:
        self._run("call")
        return np.full((2, 2, 3), len(self.resets), np.uint8)

    def reward_shaping(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._run("call")
        return [{**transition, "shaped": self.pid} for transition in transitions]

    def enable_save_replay(self, path: str) -> None:
        self.replays.append(path)

    def enable_save_figure(self, path: str) -> None:
        self.replays.append(f"figure {path}")

    def method(self) -> None:
        """A method that is missing in ``method_name_list``."""

    def close(self) -> None:
        self._run("close")


class GlobalEnv(DriftEnv):
    """Draws from NumPy's global generator and seeds it, as DI-engine's envs do."""

    _repeated: int | None = None

    def seed(self, seed: int, dynamic_seed: bool | None = None) -> None:
        self.seeds.append((seed, dynamic_seed))
        self._repeated = seed if dynamic_seed is False else None
        np.random.seed(seed)

    def reset(self, **param: Any) -> Any:
        if self._repeated is not None:
            np.random.seed(self._repeated)
        self.random = np.random.RandomState(np.random.randint(1000))
        return super().reset(**param)

    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        return timestep._replace(reward=np.random.rand())


def one_of_three(**hooks: Hook) -> list[Callable[[], Any]]:
    """Returns factories of three envs. Only the middle one has the hooks."""
    return [DriftEnv, partial(DriftEnv, **hooks), DriftEnv]


def later(act: Hook) -> Hook:
    """Returns a hook of the phase step that acts from the second step on."""
    return lambda env: act() if env.calls["step"] > 1 else None


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
