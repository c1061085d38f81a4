"""What the caller of each face meets when an env fails: the table, and how each face is brought to it.

A face is looked at where what it imitates is installed: DI-engine and ML-Agents have environments of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import accidents
from accidents import once
from failing import LIMIT, policy_against

Kind = Literal["death", "exception", "hang"]
KINDS: tuple[Kind, ...] = ("death", "exception", "hang")

ACCIDENTS: dict[str, tuple[Kind, Callable[..., Any]]] = {
    "SIGKILL": ("death", accidents.kill_myself),
    "segfault": ("death", accidents.segfault),
    "exception": ("exception", accidents.raise_value_error),
    "unpicklable": ("exception", accidents.raise_unpicklable),
    "sys.exit": ("exception", accidents.exit_python),
    "SIGSTOP": ("hang", accidents.stop_myself),
}
PHASES = {  # and what happens in them
    **dict.fromkeys(("build", "reset", "step", "call", "close"), tuple(ACCIDENTS)),
    **dict.fromkeys(("autoreset", "render"), ("SIGKILL", "exception", "SIGSTOP")),
}

Course = Callable[[Any], Any]
"""What is done with the envs until the failure is met."""

Then = Literal["goes on", "is lost", "is closed"]

Met = Literal["raised", "unseen", "cut off", "logged"]
"""Where envs are restarted: the error, nothing (it is tried again), the end of an episode; or a line in the log."""


@dataclass(frozen=True)
class Face:
    """How envs are made and used through one face, and what its caller sees of a failure.

    Attributes:
        make: (phase, what env 1 does in it once, policy, limit of the start) -> the envs.
        courses: By phase, what is done until it comes: once the envs are made, where they are built in the beginning.
        go_on: A reset and a step.
        raised: By kind, as `module:name`: a class of the error.
        then: By kind: the envs go on, are lost (each use says so), or were closed.
        was_cut_off: Whether what a step returned tells that the episode of env 1 has ended.
        closing: By kind, what comes of it in a close.
        otherwise: What is raised instead, by phase and kind or accident.
        restarting: What is met where envs are restarted and it is not what is met elsewhere, by phase and kind.
        restart_courses: What is done instead where envs are restarted, by phase.
        caught_today: What programs catch that were written for the original, by kind.
    """

    make: Callable[[str, Callable[..., Any], Any, float | None], Any]
    courses: dict[str, Course]
    go_on: Course
    raised: dict[str, str]
    then: dict[str, Then]
    was_cut_off: Callable[[Any], Any]
    closing: dict[str, Met]
    otherwise: dict[tuple[str, str], str] = field(default_factory=dict)
    restarting: dict[tuple[str, str], Met] = field(default_factory=dict)
    restart_courses: dict[str, Course] = field(default_factory=dict)
    caught_today: dict[str, str] = field(default_factory=dict)

    def expected(self, phase: str, accident: str) -> str:
        """The error that is raised."""
        kind, _ = ACCIDENTS[accident]
        table = {("build", "hang"): "remuda:StartTimeoutError", **self.otherwise}
        places = ((phase, accident), (phase, kind), ("", accident))
        return next((table[place] for place in places if place in table), self.raised[kind])

    def met(self, phase: str, accident: str) -> Met:
        """What the caller sees where envs are restarted."""
        kind, _ = ACCIDENTS[accident]
        if phase == "close":
            return self.closing[kind]
        return {**_RESTARTING, **self.restarting}.get((phase, kind), "raised")


_RESTARTING: dict[tuple[str, str], Met] = {
    **{(phase, kind): "unseen" for phase in ("reset", "autoreset") for kind in KINDS},
    **{("step", kind): "cut off" for kind in KINDS},
}


# -- those that are made from factories ----------------------------------------------------------------------


def _gymnasium(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from pool_envs import hooked

    from remuda.gymnasium import AsyncVectorEnv

    return AsyncVectorEnv(hooked(2, length=2, **{phase: act}), faults=faults, start_timeout=start_timeout)


def _sb3(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from pool_envs import drawing

    from remuda.sb3 import SubprocVecEnv

    return SubprocVecEnv(drawing(2, length=2, **{phase: act}), faults=faults, start_timeout=start_timeout)


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


def _ding_steps_all(manager: Any) -> Any:
    while not manager.closed and len(manager.ready_obs) < 2:
        pass  # who was cut off is being reset
    return manager.step({0: 0, 1: 0})


def _mlagents(phase: str, act: Callable[..., Any], faults: Any, _: float | None) -> Any:
    """Envs are built by the first reset, under the limit of a step: the workers' start has no part in it."""
    from mlagents_face_envs import FaultyEnv, manager

    return manager(partial(FaultyEnv, accident=act, where=phase, at=1, worker=1), faults=faults)


def _mlagents_step(manager: Any) -> Any:
    manager.reset({})
    while True:  # whoever is there first is told, until it is env 1
        manager.get_steps()


def _mlagents_steps_until_restarted(manager: Any) -> list[int]:
    manager.reset({})
    while not manager.restart_counts[1]:
        manager.get_steps()
    return manager.restart_counts[1:]


# -- the table -----------------------------------------------------------------------------------------------

LOST: dict[str, Then] = {"exception": "goes on", "death": "is lost", "hang": "is lost"}
CLOSED: dict[str, Then] = dict.fromkeys(KINDS, "is closed")
RESTARTED: dict[str, Then] = dict.fromkeys(KINDS, "goes on")
LOGGED: dict[str, Met] = {"exception": "logged", "death": "logged", "hang": "unseen"}


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
            "close": lambda envs: (envs.reset(), envs.close()),
        },
        lambda envs: (envs.reset(), envs.step([7, 8])),
        engines("remuda") | {"exception": "builtins:ValueError"},
        LOST,
        was_cut_off=lambda step: step[3][1],
        closing={"death": "raised", "exception": "raised", "hang": "unseen"},
        otherwise={("", name): "remuda:EnvError" for name in ("unpicklable", "sys.exit")},
    ),
    "sb3": Face(
        _sb3,
        {
            "reset": lambda envs: envs.reset(),
            "step": lambda envs: (envs.reset(), envs.step([5, 5])),
            "autoreset": lambda envs: (envs.reset(), *(envs.step([5, 5]) for _ in range(2))),
            "call": lambda envs: (envs.reset(), envs.env_method("poke")),
            "render": lambda envs: (envs.reset(), envs.get_images()),
            "close": lambda envs: (envs.reset(), envs.close()),
        },
        lambda envs: (envs.reset(), envs.step([7, 8])),
        engines("remuda.sb3"),
        LOST,
        was_cut_off=lambda step: step[2][1],
        closing=LOGGED,
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
            "close": lambda envs: (envs.reset(), envs.close()),
        },
        lambda envs: (envs.reset(), _alf_step(envs)),
        engines("remuda.alf"),
        LOST,
        was_cut_off=lambda step: step.is_last()[1],
        closing=LOGGED,
        caught_today=dict.fromkeys(KINDS, "builtins:RuntimeError"),
    ),
    "ding": Face(
        _ding,
        {
            "build": lambda manager: manager.launch(),
            "reset": lambda manager: manager.launch(),
            "step": lambda manager: (manager.launch(), manager.step({0: 0, 1: 0})),
            "call": lambda manager: (manager.launch(), manager.mood),
            "close": lambda manager: (manager.launch(), manager.close()),
        },
        _ding_steps_all,
        {"exception": "builtins:ValueError", "death": "builtins:EOFError", "hang": "builtins:TimeoutError"},
        CLOSED,
        was_cut_off=lambda step: step[1].info["abnormal"],
        closing=LOGGED,
        restarting={("call", kind): "unseen" for kind in ("death", "hang")},  # they are asked once more
        otherwise={
            **{("", name): "remuda:RemudaError" for name in ("unpicklable", "sys.exit")},
            **{(phase, name): "builtins:RuntimeError" for phase in ("build", "reset") for name in ACCIDENTS},
        },
    ),
    "mlagents": Face(
        _mlagents,
        {
            "build": lambda manager: manager.reset({}),
            "reset": lambda manager: manager.reset({}),
            "step": _mlagents_step,
            "close": lambda manager: (manager.reset({}), manager.close()),
        },
        lambda manager: (manager.reset({}), manager.get_steps()),
        engines("remuda.mlagents") | {"exception": "builtins:ValueError"},
        RESTARTED,
        was_cut_off=bool,
        closing=LOGGED,
        otherwise={
            ("build", "hang"): "remuda.mlagents:EnvTimeoutError",
            **{("", name): "remuda:EnvError" for name in ("unpicklable", "sys.exit")},
        },
        restarting={
            ("step", "exception"): "raised",  # but for Unity's own
            **{("reset", kind): "raised" for kind in KINDS},  # an env that was never reset is set up wrongly
        },
        restart_courses={"step": _mlagents_steps_until_restarted},
        caught_today={
            "death": "mlagents_envs.exception:UnityCommunicationException",
            "hang": "mlagents_envs.exception:UnityTimeOutException",
        },
    ),
}
NEEDS = {"sb3": "stable_baselines3", "ding": "ding", "mlagents": "mlagents", "alf": "torch"}


def made(face: str, phase: str, accident: str, directory: Path, policy: str = "raise") -> Any:
    """Two envs, the second of which fails once in this phase."""
    kind, act = ACCIDENTS[accident]
    start_timeout = LIMIT if (phase, kind) == ("build", "hang") else None
    once_only = once(directory / "accident", act)
    return FACES[face].make(phase, once_only, policy_against(kind, policy), start_timeout)
