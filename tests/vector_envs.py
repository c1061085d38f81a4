"""Vector envs for the tests of the pool. Workers import this module by name, like `pool_envs`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from old_gymnasium import in_mode, require_mode
from pool_envs import EnvFn, Info

VectorHook = Callable[..., Any]


def synced(
    env_fns: Sequence[EnvFn], size: int, mode: str = "next_step", before_step: VectorHook | None = None
) -> list[EnvFn]:
    """Returns factories of Gymnasium's vector envs of `size` envs each. The first one has the hook."""
    require_mode(mode)

    firsts = range(0, len(env_fns), size)
    return [partial(_HookedSync, env_fns[i : i + size], None if i else before_step, mode) for i in firsts]


class _HookedSync(SyncVectorEnv):
    def __init__(self, env_fns: Sequence[EnvFn], hook: VectorHook | None, mode: str) -> None:
        super().__init__(env_fns, **in_mode(mode))
        self._hook, self.steps = hook, 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        if self._hook is not None:
            self._hook(self)
        return super().step(actions)


class PlainVector:
    """A vector env that is not derived from Gymnasium's class, like those of simulators that step many envs at once.

    Each env observes (tag + its number, episodes, steps, last action), always in the same arrays. An episode has
    `length` steps plus the env's number. Infos have no masks, and final observations are one batch. Hooks run before
    `build`, `reset`, `step` and `call`, and may return the result of `reset` or `step`.
    """

    metadata: Info = {}

    def __init__(
        self, num_envs: int, tag: int = 0, length: int = 1_000_000, mode: str = "next_step", **hooks: VectorHook
    ) -> None:
        self.num_envs, self.mode, self.hooks = num_envs, mode, hooks
        self.single_observation_space = spaces.Box(-(2**40), 2**40, (4,), np.int64)
        self.single_action_space = spaces.Discrete(1000)
        self.lengths = length + np.arange(num_envs)
        self.obs = np.zeros((num_envs, 4), np.int64)
        self.obs[:, 0] = tag + np.arange(num_envs)
        self.over = np.zeros(num_envs, bool)
        self.resets: list[Info] = []
        self.calls = self.steps = 0
        self._run("build")

    def _run(self, phase: str, *args: Any) -> Any:
        return self.hooks[phase](self, *args) if phase in self.hooks else None

    def reset(self, **arguments: Any) -> tuple[Any, Info]:
        self.resets.append(arguments)
        self._begin(np.ones(self.num_envs, bool))
        answer = self._run("reset")
        return (self.obs, self._infos()) if answer is None else answer

    def _begin(self, which: Any) -> None:
        self.obs[which, 1] += 1
        self.obs[which, 2], self.obs[which, 3] = 0, -1
        self.over[which] = False

    def _infos(self) -> Info:
        return {"count": self.obs[:, 2].copy(), "half": self.obs[:, 2] / 2, "pair": self.obs[:, 1:3].astype(np.float32)}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        resetting = self.over.copy() if self.mode == "next_step" else np.zeros(self.num_envs, bool)
        self.obs[~resetting, 2] += 1
        self.obs[~resetting, 3] = actions[~resetting]
        self._begin(resetting) if resetting.any() else None
        reward = np.where(resetting, 0, actions).astype(np.float32)
        self.over = self.obs[:, 2] >= self.lengths
        over, infos = self.over.copy(), self._infos()
        if self.mode == "same_step" and over.any():
            infos["final_obs"] = self.obs.copy()
            self._begin(over)
        answer = self._run("step", actions)
        return (self.obs, reward, over, np.zeros(self.num_envs, bool), infos) if answer is None else answer

    def poke(self, by: int = 1) -> int:
        self.calls += by
        self._run("call")
        return self.calls

    def render(self) -> Any:
        return self.obs.copy()

    def close(self) -> None:
        self._run("close")


def plain(num_vectors: int, size: int, length: int = 1_000_000, mode: str = "next_step", **hooks: Any) -> list[EnvFn]:
    """Returns factories of PlainVectors. The first one has the hooks."""
    given = [hooks] + [{}] * num_vectors
    return [partial(PlainVector, size, i * size, length, mode, **given[i]) for i in range(num_vectors)]


def die_while_sending(env: Any, *_: Any) -> Any:
    """A step in which the worker dies after the first result, while it sends the second one."""
    main = threading.current_thread()
    threading.Thread(target=_kill_when_sending, args=(main.ident,), daemon=True).start()
    infos = {"parcel": np.array([b"small", b"x" * (64 << 20)], object)}
    return env.obs, np.zeros(env.num_envs), env.over.copy(), env.over.copy(), infos


def _kill_when_sending(ident: int) -> None:
    while True:  # the pool does not read, so the main thread stays in the channel
        frame = sys._current_frames().get(ident)
        while frame is not None:
            if frame.f_code.co_filename.endswith("channel.py"):
                os.kill(os.getpid(), signal.SIGKILL)
            frame = frame.f_back
