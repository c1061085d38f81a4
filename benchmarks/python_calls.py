"""Counts the Python functions that run in the caller's process for one step of 8 CartPole-like envs, by face.

Between two batches of cheap envs every call matters: caches are cold, and workers wait. C code is not counted. A face
whose framework is not installed is left out.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
from harness.envs import NullEnv
from harness.options import parse_options
from harness.session import Session
from harness.tables import table

import remuda

NUM_ENVS = 8
OPTIONS: Any = {"num_workers": 2, "log_advice": False}

Step = Callable[[], Any]


ACTIONS = np.zeros(NUM_ENVS, np.int64)


# -- the faces: context managers, each with a function that makes one step ---------------------------------------


@contextmanager
def pool() -> Iterator[Step]:
    with remuda.Pool([NullEnv] * NUM_ENVS, **OPTIONS) as envs:
        envs.reset()
        yield functools.partial(envs.step, ACTIONS)


@contextmanager
def of_gymnasium() -> Iterator[Step]:
    envs: Any = remuda.gymnasium.AsyncVectorEnv([NullEnv] * NUM_ENVS, **OPTIONS)
    envs.reset()
    yield functools.partial(envs.step, ACTIONS)
    envs.close()


@contextmanager
def of_sb3() -> Iterator[Step]:
    envs = remuda.sb3.SubprocVecEnv([NullEnv] * NUM_ENVS, **OPTIONS)
    envs.reset()
    yield functools.partial(envs.step, ACTIONS)
    envs.close()


@contextmanager
def of_ding(manager: str) -> Iterator[Step]:
    from peers.ding import _DingEnv

    config = {"remuda": OPTIONS, "reset_inplace": True}
    envs = getattr(remuda.ding, manager)([functools.partial(_DingEnv, NullEnv)] * NUM_ENVS, config)
    envs.launch()
    actions: Any = [np.asarray(action) for action in ACTIONS]
    if manager == "SyncSubprocessEnvManager":
        actions = dict(enumerate(actions))
    yield functools.partial(envs.step, actions)
    envs.close()


@contextmanager
def of_alf() -> Iterator[Step]:
    alf_parallel = importlib.import_module("alf_parallel")  # raises SystemExit if ALF is not installed
    envs = remuda.alf.FastParallelEnvironment([alf_parallel.VECTOR] * NUM_ENVS, **OPTIONS)
    envs.reset()
    yield functools.partial(envs.step, alf_parallel.torch.from_numpy(ACTIONS))
    envs.close()


@contextmanager
def of_mlagents() -> Iterator[Step]:
    """Yields a function that steps each env once. It calls ML-Agents' manager until it has a result of each env."""
    mlagents_face = importlib.import_module("mlagents_face")
    envs = mlagents_face.build(remuda.mlagents.SubprocessEnvManager, mlagents_face.WORKLOADS["nothing"], NUM_ENVS)
    yield functools.partial(mlagents_face.step, envs, NUM_ENVS)
    envs.close()


FACES: dict[str, Any] = {
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
    """Returns the names of the functions that one step calls, in order. Each turn of a generator is a call too."""
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
    """Measures ten steps and returns the shortest list of calls, because some steps have additional work."""
    for _ in range(3):
        step()
    return min((calls_of(step) for _ in range(10)), key=len)


def measure(session: Session) -> dict[str, list[str]]:
    found = {}
    for name, face in FACES.items():
        try:
            with face() as step:
                found[name] = steady_calls(step)
        except (ImportError, SystemExit) as missing:
            session.leave_out([f"{name}: {missing}"])
    return found


def row(name: str, calls: list[str]) -> list[str]:
    ours = sum(call.startswith("remuda.") for call in calls)
    return [f"`{name}`", str(len(calls)), str(ours)]


def main() -> None:
    options = parse_options(
        __doc__,
        json=False,
        more=lambda parser: parser.add_argument("--calls", action="store_true", help="list the calls too"),
    )
    session = Session(options)
    found = measure(session)
    columns = ["a step of", "Python calls", "of them in remuda"]
    session.publish("python_calls", [table(columns, (row(*one) for one in found.items()))])
    if options.calls:
        for name, calls in found.items():
            print(f"\n{name}", *calls, sep="\n    ")


if __name__ == "__main__":
    main()
