"""What the caller of each face is raised when an env fails: the table, and how each face is brought to it.

A face is looked at where what it imitates is installed: DI-engine and ML-Agents have environments of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from failing import ACTS, LIMIT, once, policy_against

PHASES = ("build", "reset", "step", "autoreset", "call", "render")
KINDS = tuple(ACTS)

Course = Callable[[Any], Any]
"""What is done with the envs until the failure is met."""


Then = Literal["goes on", "is lost", "is closed"]


@dataclass(frozen=True)
class Face:
    """How envs are made and used through one face, and what its caller sees of a failure.

    Attributes:
        make: (phase, what env 1 does in it once, policy, limit of the start) -> the envs.
        courses: By phase, what is done until it comes: once the envs are made, where they are built in the beginning.
        go_on: A reset and a step.
        raised: By kind, as `module:name`: a class of the error.
        then: By kind: the envs go on, are lost (each use says so), or were closed.
        otherwise: What is raised instead, by phase and kind.
        caught_today: What programs catch that were written for the original, by kind.
    """

    make: Callable[[str, Callable[..., Any], Any, float | None], Any]
    courses: dict[str, Course]
    go_on: Course
    raised: dict[str, str]
    then: dict[str, Then]
    otherwise: dict[tuple[str, str], str] = field(default_factory=dict)
    caught_today: dict[str, str] = field(default_factory=dict)

    def expected(self, phase: str, kind: str) -> str:
        late = {("build", "hang"): "remuda:StartTimeoutError"}
        return {**late, **self.otherwise}.get((phase, kind), self.raised[kind])


# -- those that are made from factories ----------------------------------------------------------------------


def _gymnasium(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from pool_envs import hooked

    from remuda.gymnasium import AsyncVectorEnv

    return AsyncVectorEnv(hooked(2, length=2, **{phase: act}), faults=faults, start_timeout=start_timeout)


def _sb3(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from pool_envs import hooked

    from remuda.sb3 import SubprocVecEnv

    return SubprocVecEnv(hooked(2, length=2, **{phase: act}), faults=faults, start_timeout=start_timeout)


def _alf(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from alf_face_envs import hooked

    from remuda.alf import FastParallelEnvironment

    return FastParallelEnvironment(hooked(2, length=2, **{phase: act}), faults=faults, start_timeout=start_timeout)


def _alf_step(envs: Any) -> Any:
    import torch

    return envs.step(torch.tensor([5, 5]))


# -- those with managers -------------------------------------------------------------------------------------


def _ding(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from ding_face_envs import Unlucky, unlaunched

    limits = {f"{name}_timeout": getattr(faults, f"{name}_timeout") for name in ("step", "reset")}
    options = {"start_timeout": start_timeout, "faults": faults}
    return unlaunched([partial(Unlucky, which, act, os.getpid()) for which in ("no", phase)], **limits, remuda=options)


def _mlagents(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from mlagents_face_envs import FaultyEnv, manager

    return manager(
        partial(FaultyEnv, accident=act, where=phase, at=1, worker=1), faults=faults, start_timeout=start_timeout
    )


def _mlagents_step(manager: Any) -> Any:
    manager.reset({})
    while True:  # whoever is there first is told, until it is env 1
        manager.get_steps()


# -- the table -----------------------------------------------------------------------------------------------

LOST: dict[str, Then] = {"exception": "goes on", "death": "is lost", "hang": "is lost"}
CLOSED: dict[str, Then] = dict.fromkeys(KINDS, "is closed")
RESTARTED: dict[str, Then] = dict.fromkeys(KINDS, "goes on")


def engines(module: str) -> dict[str, str]:
    names = {"exception": "EnvError", "death": "WorkerDiedError", "hang": "EnvTimeoutError"}
    return {kind: f"{module}:{name}" for kind, name in names.items()}


FACES = {
    "gymnasium": Face(
        _gymnasium,
        {
            "reset": lambda envs: envs.reset(),
            "step": lambda envs: (envs.reset(), envs.step([5, 5])),
            "autoreset": lambda envs: (envs.reset(), *(envs.step([5, 5]) for _ in range(3))),
            "call": lambda envs: (envs.reset(), envs.call("poke")),
            "render": lambda envs: (envs.reset(), envs.render()),
        },
        lambda envs: (envs.reset(), envs.step([7, 8])),
        engines("remuda") | {"exception": "builtins:ValueError"},
        LOST,
    ),
    "sb3": Face(
        _sb3,
        {
            "reset": lambda envs: envs.reset(),
            "step": lambda envs: (envs.reset(), envs.step([5, 5])),
            "autoreset": lambda envs: (envs.reset(), *(envs.step([5, 5]) for _ in range(2))),
            "call": lambda envs: (envs.reset(), envs.env_method("poke")),
            "render": lambda envs: (envs.reset(), envs.get_images()),
        },
        lambda envs: (envs.reset(), envs.step([7, 8])),
        engines("remuda.sb3"),
        LOST,
        caught_today=dict.fromkeys(KINDS, "builtins:EOFError"),
    ),
    "alf": Face(
        _alf,
        {
            "reset": lambda envs: envs.reset(),
            "step": lambda envs: (envs.reset(), _alf_step(envs)),
            "autoreset": lambda envs: (envs.reset(), *(_alf_step(envs) for _ in range(3))),
            "call": lambda envs: (envs.reset(), envs.call_envs_with_same_args("poke")),
            "render": lambda envs: (envs.reset(), envs.envs[1].render()),
        },
        lambda envs: (envs.reset(), _alf_step(envs)),
        engines("remuda.alf"),
        LOST,
        caught_today=dict.fromkeys(KINDS, "builtins:RuntimeError"),
    ),
    "ding": Face(
        _ding,
        {
            "build": lambda manager: manager.launch(),
            "reset": lambda manager: manager.launch(),
            "step": lambda manager: (manager.launch(), manager.step({0: 0, 1: 0})),
            "call": lambda manager: (manager.launch(), manager.mood),
        },
        lambda manager: manager.step({0: 0, 1: 0}),
        {"exception": "builtins:ValueError", "death": "builtins:EOFError", "hang": "builtins:TimeoutError"},
        CLOSED,
        otherwise={(phase, kind): "builtins:RuntimeError" for phase in ("build", "reset") for kind in KINDS},
    ),
    "mlagents": Face(
        _mlagents,
        {
            "build": lambda manager: manager.reset({}),
            "reset": lambda manager: manager.reset({}),
            "step": _mlagents_step,
        },
        lambda manager: (manager.reset({}), manager.get_steps()),
        engines("remuda.mlagents") | {"exception": "builtins:ValueError"},
        RESTARTED,
        caught_today={
            "death": "mlagents_envs.exception:UnityCommunicationException",
            "hang": "mlagents_envs.exception:UnityTimeOutException",
        },
    ),
}
NEEDS = {"sb3": "stable_baselines3", "ding": "ding", "mlagents": "mlagents", "alf": "torch"}


def made(face: str, phase: str, kind: str, directory: Path) -> Any:
    """Two envs, the second of which fails once in this phase."""
    start_timeout = LIMIT if (phase, kind) == ("build", "hang") else None
    act = once(directory / "accident", ACTS[kind])
    return FACES[face].make(phase, act, policy_against(kind, "raise"), start_timeout)
