"""Workloads of benchmarks: an env, and the actions that it is stepped with."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import gymnasium
from gymnasium.vector.utils import batch_space

from remuda._factories import import_factory

Env: TypeAlias = gymnasium.Env[Any, Any]
EnvFactory: TypeAlias = Callable[[], Env]

_VERSIONED = re.compile(r"-v\d+$")


class WorkloadError(Exception):
    """The named environment cannot be made."""


def one_line(error: BaseException) -> str:
    """Returns the error's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@dataclass(frozen=True)
class Workload:
    """An environment to step."""

    name: str
    make_env: EnvFactory


def resolve(target: str) -> Workload:
    """Returns the workload for ``target``: a Gymnasium id, or ``module:factory``.

    A target with a colon is a Gymnasium id if it ends in a version (``ale_py:ALE/Pong-v5`` imports ``ale_py``
    first), else a callable in a module, which may be in the working directory. Raises `WorkloadError` if
    there is no such module or factory.
    """
    if _is_id(target):
        return Workload(target, functools.partial(gymnasium.make, target))
    try:
        return Workload(target, import_factory(target))
    except ValueError as error:
        raise WorkloadError(str(error)) from error


def resolve_drawing(target: str) -> EnvFactory:
    """Returns a factory of the env. The env renders if ``target`` is a Gymnasium id and the env can render."""
    workload = resolve(target)
    return functools.partial(_make_drawing, target) if _is_id(target) else workload.make_env


def _make_drawing(env_id: str) -> Env:
    env = gymnasium.make(env_id)
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        return env
    env.close()
    return gymnasium.make(env_id, render_mode="rgb_array")


class Spaces(NamedTuple):
    """The spaces of an env."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]


def probe_spaces(workload: Workload) -> Spaces:
    """Builds the env once, in this process, and returns its spaces. Raises `WorkloadError` if it cannot be built."""
    try:
        env = workload.make_env()
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"expected a gymnasium.Env, got {type(env).__name__}")
        spaces = Spaces(env.observation_space, env.action_space)
        env.close()
    except (Exception, SystemExit) as error:
        raise WorkloadError(f"{workload.name}: {one_line(error)}") from error
    return spaces


class Actions(NamedTuple):
    """Batches of actions sampled beforehand, so that sampling is not measured."""

    space: gymnasium.Space[Any]
    """The batched action space."""
    batches: Sequence[Any]


def sample_actions(space: gymnasium.Space[Any], num_envs: int, count: int, seed: int) -> Actions:
    """Returns ``count`` batches of actions for ``num_envs`` envs, the same ones for the same seed."""
    batched = batch_space(space, num_envs)
    batched.seed(seed)
    return Actions(batched, [batched.sample() for _ in range(count)])


def _is_id(target: str) -> bool:
    return ":" not in target or _VERSIONED.search(target) is not None
