"""A table of what the caller of each face receives when an env fails, and functions that make the envs fail.

A face is tested only where its library is installed. DI-engine and ML-Agents have their own environments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
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
PHASES = {  # and their accidents
    **dict.fromkeys(("build", "reset", "step", "call", "close"), tuple(ACCIDENTS)),
    **dict.fromkeys(("autoreset", "render"), ("SIGKILL", "exception", "SIGSTOP")),
}

Course = Callable[[Any], Any]
"""Uses the envs until the accident happens."""

Then = Literal["goes on", "is lost", "is closed"]

Met = Literal["raised", "unseen", "cut off", "logged"]
"""The effect on the caller: an error, none (the call is repeated), the end of an episode, or a line in the log."""


@dataclass(frozen=True)
class Face:
    """The functions that use envs through one face, and the expected outcome of each failure.

    Attributes:
        make: Makes two envs from (phase, accident of env 1, policy, start timeout).
        courses: For each phase, a function that uses the envs until the accident happens.
        go_on: Resets and steps the envs.
        raised: For each kind, the class of the error, as `module:name`.
        then: For each kind, the condition of the envs afterwards: usable, lost (each use raises), or closed.
        was_cut_off: Returns True if a step's result has the end of env 1's episode.
        closing: For each kind, the effect of an accident in a close.
        otherwise: Exceptions from `raised`, for (phase, kind) or (phase, accident).
        restarting: With restarts, the effects that differ from those of other faces, for (phase, kind).
        restart_courses: With restarts, the functions that differ from `courses`.
        caught_today: For each kind, the class of the imitated library's error, which existing programs catch.
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
        """Returns the class of the error without restarts, as `module:name`."""
        kind, _ = ACCIDENTS[accident]
        table = {("build", "hang"): "remuda:StartTimeoutError", **self.otherwise}
        places = ((phase, accident), (phase, kind), ("", accident))
        return next((table[place] for place in places if place in table), self.raised[kind])

    def met(self, phase: str, accident: str) -> Met:
        """Returns the effect on the caller with restarts."""
        kind, _ = ACCIDENTS[accident]
        if phase == "close":
            return self.closing[kind]
        return {**_RESTARTING, **self.restarting}.get((phase, kind), "raised")


_RESTARTING: dict[tuple[str, str], Met] = {
    **{(phase, kind): "unseen" for phase in ("reset", "autoreset") for kind in KINDS},
    **{("step", kind): "cut off" for kind in KINDS},
}


# -- Gymnasium, Stable-Baselines3 and ALF ---------------------------------------------------------------------


def _made_from(envs: str, hooked: str, face: str, name: str) -> Callable[..., Any]:
    """Returns a function that makes two envs of a face. `envs`: the module of the function `hooked`, for factories."""

    def make(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
        env_fns = getattr(import_module(envs), hooked)(2, length=2, **{phase: act})
        return getattr(import_module(face), name)(env_fns, faults=faults, start_timeout=start_timeout)

    return make


def _courses(step: Course, call: Course, render: Course, autoreset: int = 3) -> dict[str, Course]:
    """Returns a face's courses. `autoreset`: the number of the step that resets the envs."""
    return {
        "reset": lambda envs: envs.reset(),
        "step": lambda envs: (envs.reset(), step(envs)),
        "autoreset": lambda envs: (envs.reset(), *(step(envs) for _ in range(autoreset))),
        "call": lambda envs: (envs.reset(), call(envs)),
        "render": lambda envs: (envs.reset(), render(envs)),
        "close": lambda envs: (envs.reset(), envs.close()),
    }


def _alf_step(envs: Any) -> Any:
    import torch

    return envs.step(torch.tensor([5, 5]))


def _pettingzoo(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from parallel_envs import Pair
    from pool_envs import hooked

    from remuda.pettingzoo import vector

    env_fns = [partial(Pair, env_fn) for env_fn in hooked(2, length=2, **{phase: act})]
    return vector(env_fns, faults=faults, start_timeout=start_timeout, num_workers=2)


def _pettingzoo_step(envs: Any) -> Any:
    import numpy as np

    return envs.step(dict.fromkeys(envs.possible_agents, np.array([5, 5])))


# -- DI-engine and ML-Agents ----------------------------------------------------------------------------------


def _ding(phase: str, act: Callable[..., Any], faults: Any, start_timeout: float | None) -> Any:
    from ding_face_envs import DriftEnv, unlaunched

    limits = {f"{name}_timeout": getattr(faults, f"{name}_timeout") for name in ("step", "reset")}
    options = {"start_timeout": start_timeout, "faults": faults}
    return unlaunched([DriftEnv, partial(DriftEnv, **{phase: act})], **limits, remuda=options)


def _ding_steps_all(manager: Any) -> Any:
    while not manager.closed and len(manager.ready_obs) < 2:
        pass  # waits for the reset of an env that was cut off
    return manager.step({0: 0, 1: 0})


def _mlagents(phase: str, act: Callable[..., Any], faults: Any, _: float | None) -> Any:
    """The first reset builds the envs within `step_timeout`, so the start timeout does not apply."""
    from mlagents_face_envs import faulty, manager

    return manager(faulty(act, phase, at=1, worker=1), faults=faults)


def _mlagents_step(manager: Any) -> Any:
    manager.reset({})
    while True:  # each call returns the steps that are finished, until env 1's arrives
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
RAISED: dict[str, Met] = {"death": "raised", "exception": "raised", "hang": "unseen"}
LOGGED: dict[str, Met] = {"exception": "logged", "death": "logged", "hang": "unseen"}


def engines(module: str) -> dict[str, str]:
    names = {"exception": "EnvError", "death": "WorkerDiedError", "hang": "EnvTimeoutError"}
    return {kind: f"{module}:{name}" for kind, name in names.items()}


FACES = {
    "gymnasium": Face(
        _made_from("pool_envs", "hooked", "remuda.gymnasium", "AsyncVectorEnv"),
        _courses(lambda envs: envs.step([5, 5]), lambda envs: envs.call("poke"), lambda envs: envs.render()),
        lambda envs: (envs.reset(), envs.step([7, 8])),
        engines("remuda") | {"exception": "builtins:ValueError"},
        LOST,
        was_cut_off=lambda step: step[3][1],
        closing=RAISED,
        otherwise={("", name): "remuda:EnvError" for name in ("unpicklable", "sys.exit")},
    ),
    "sb3": Face(
        _made_from("pool_envs", "drawing", "remuda.sb3", "SubprocVecEnv"),
        _courses(
            lambda envs: envs.step([5, 5]),
            lambda envs: envs.env_method("poke"),
            lambda envs: envs.get_images(),
            autoreset=2,
        ),
        lambda envs: (envs.reset(), envs.step([7, 8])),
        engines("remuda.sb3"),
        LOST,
        was_cut_off=lambda step: step[2][1],
        closing=LOGGED,
        caught_today=dict.fromkeys(KINDS, "builtins:EOFError"),
    ),
    "alf": Face(
        _made_from("alf_face_envs", "hooked", "remuda.alf", "FastParallelEnvironment"),
        _courses(_alf_step, lambda envs: envs.call_envs_with_same_args("poke"), lambda envs: envs.envs[1].render()),
        lambda envs: (envs.reset(), _alf_step(envs)),
        engines("remuda.alf"),
        LOST,
        was_cut_off=lambda step: step.is_last()[1],
        closing=LOGGED,
        caught_today=dict.fromkeys(KINDS, "builtins:RuntimeError"),
    ),
    "pettingzoo": Face(
        _pettingzoo,
        _courses(_pettingzoo_step, lambda envs: envs.call("poke"), lambda envs: envs.render()),
        lambda envs: (envs.reset(), _pettingzoo_step(envs)),
        engines("remuda"),
        LOST,
        was_cut_off=lambda step: all(flags[1] for flags in step[3].values()),
        closing=RAISED,
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
        restarting={("call", kind): "unseen" for kind in ("death", "hang")},  # the successor repeats the call
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
            ("step", "exception"): "raised",  # except Unity's exceptions
            **{("reset", kind): "raised" for kind in KINDS},  # an env that fails in its first reset is not restarted
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
    """Returns two envs behind this face. The second has this accident once in this phase."""
    kind, act = ACCIDENTS[accident]
    start_timeout = LIMIT if (phase, kind) == ("build", "hang") else None
    once_only = once(directory / "accident", act)
    return FACES[face].make(phase, once_only, policy_against(kind, policy), start_timeout)
