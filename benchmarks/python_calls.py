"""How many Python functions run in the caller's process for one step of 8 CartPole-like envs, by face.

Between two batches of cheap envs every call counts: caches are cold, and workers wait. What C code does is
not counted. A face is in the table where the framework that it stands for is installed.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

import gymnasium
import numpy as np
from script import publish_lines
from tables import head, row

import remuda

NUM_ENVS = 8
OPTIONS: Any = {"num_workers": 2, "advise": False}

Step = Callable[[], Any]


class PoleEnv(gymnasium.Env[Any, Any]):
    """CartPole's spaces and empty infos; its episodes never end, so that every step is as the one before."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._obs, 1.0, False, False, {}


ACTIONS = np.zeros(NUM_ENVS, np.int64)


# -- the faces: each yields what does one step ----------------------------------------------------------


@contextmanager
def pool() -> Iterator[Step]:
    with remuda.Pool([PoleEnv] * NUM_ENVS, **OPTIONS) as envs:
        envs.reset()
        yield functools.partial(envs.step, ACTIONS)


@contextmanager
def of_gymnasium() -> Iterator[Step]:
    envs: Any = remuda.gymnasium.AsyncVectorEnv([PoleEnv] * NUM_ENVS, **OPTIONS)
    envs.reset()
    yield functools.partial(envs.step, ACTIONS)
    envs.close()


@contextmanager
def of_sb3() -> Iterator[Step]:
    envs = remuda.sb3.SubprocVecEnv([PoleEnv] * NUM_ENVS, **OPTIONS)
    envs.reset()
    yield functools.partial(envs.step, ACTIONS)
    envs.close()


@contextmanager
def of_ding(manager: str) -> Iterator[Step]:
    from peers.ding import _DingEnv

    config = {"remuda": OPTIONS, "reset_inplace": True}
    envs = getattr(remuda.ding, manager)([functools.partial(_DingEnv, PoleEnv)] * NUM_ENVS, config)
    envs.launch()
    actions: Any = [np.asarray(action) for action in ACTIONS]
    if manager == "SyncSubprocessEnvManager":
        actions = dict(enumerate(actions))
    yield functools.partial(envs.step, actions)
    envs.close()


@contextmanager
def of_alf() -> Iterator[Step]:
    alf_parallel = importlib.import_module("alf_parallel")  # it says what it needs, and leaves
    envs = remuda.alf.FastParallelEnvironment([alf_parallel.VECTOR] * NUM_ENVS, **OPTIONS)
    envs.reset()
    yield functools.partial(envs.step, alf_parallel.torch.from_numpy(ACTIONS))
    envs.close()


@contextmanager
def of_mlagents() -> Iterator[Step]:
    """A step here is one of each env: they come one by one."""
    mlagents_face = importlib.import_module("mlagents_face")
    envs = mlagents_face.build(remuda.mlagents.SubprocessEnvManager, mlagents_face.WORKLOADS["nothing"], NUM_ENVS)
    yield functools.partial(mlagents_face.step, envs, NUM_ENVS)
    envs.close()


FACES = {
    "remuda.Pool": pool,
    "remuda.gymnasium.AsyncVectorEnv": of_gymnasium,
    "remuda.sb3.SubprocVecEnv": of_sb3,
    "remuda.ding.SyncSubprocessEnvManager": functools.partial(of_ding, "SyncSubprocessEnvManager"),
    "remuda.ding.SubprocessEnvManagerV2": functools.partial(of_ding, "SubprocessEnvManagerV2"),
    "remuda.alf.FastParallelEnvironment": of_alf,
    "remuda.mlagents.SubprocessEnvManager": of_mlagents,
}


# -- counting ------------------------------------------------------------------------------------------


def calls_of(step: Step) -> list[str]:
    """The functions that one step calls, in order; each turn of a generator is a call, too."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            calls.append(f"{frame.f_globals.get('__name__')}: {getattr(code, 'co_qualname', code.co_name)}")

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


def steady_calls(step: Step) -> list[str]:
    """Those of the quietest of many steps: now and then a step finds something to do that most have not."""
    for _ in range(3):
        step()
    return min((calls_of(step) for _ in range(10)), key=len)


def measure() -> dict[str, list[str]]:
    found = {}
    for name, face in FACES.items():
        try:
            with face() as step:
                found[name] = steady_calls(step)
        except (ImportError, SystemExit) as missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
    return found


def markdown(found: dict[str, list[str]]) -> Iterator[str]:
    yield from head(["a step of", "Python calls", "of them in remuda"])
    for name, calls in found.items():
        ours = sum(call.startswith("remuda.") for call in calls)
        yield row([f"`{name}`", str(len(calls)), str(ours)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="list them, too")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md beside this file")
    options = parser.parse_args()
    found = measure()
    publish_lines("python-calls", markdown(found), options)
    if options.calls:
        for name, calls in found.items():
            print(f"\n{name}", *calls, sep="\n    ")


if __name__ == "__main__":
    main()
