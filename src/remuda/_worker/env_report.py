"""What a worker says of an env that it has built, and whether it is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from remuda._wire import by_value
from remuda._wire.codec import ColumnSpec
from remuda._wire.env_state import StateSupport
from remuda._worker.env_state import support_of
from remuda.errors import InvalidEnvError


@dataclass(frozen=True)
class EnvReport:
    """What a worker says of an env that it has built."""

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None
    state: StateSupport
    computed: tuple[ColumnSpec, ...] = ()  # columns of the pool's caller


def is_vector_env(env: Any) -> bool:
    """Whether it is one of Gymnasium's, or like them. (What answers to any name is none.)"""
    return isinstance(getattr(env, "num_envs", None), int) and isinstance(
        getattr(env, "single_observation_space", None), Space
    )


def check_names(env: Any, factory: str, kind: str, names: Sequence[str]) -> None:
    """Raises InvalidEnvError when an env lacks any of these, or is a class."""
    lacking = [name for name in names if not hasattr(env, name)]
    if lacking or isinstance(env, type):
        why = f"it has no {', '.join(lacking)}" if lacking else "a class, not yet an env"
        raise InvalidEnvError(f"expected {factory} to return {kind}, got {env!r} ({why})")


def check_spaces(env: Any, factory: str, names: Sequence[str]) -> None:
    """Raises InvalidEnvError when any of these is no space."""
    for name in names:
        if not isinstance(getattr(env, name), Space):
            raise InvalidEnvError(
                f"expected {factory} to return an env whose {name} is a gymnasium.Space, got {getattr(env, name)!r}"
            )


def check_single(env: Any, factory: str) -> None:
    """Raises InvalidEnvError when it is no single env."""
    if is_vector_env(env):
        raise InvalidEnvError(
            f"expected {factory} to return a gymnasium.Env, got the vector env {env!r}; pass vector_size={env.num_envs}"
        )
    check_names(env, factory, "a gymnasium.Env", ("reset", "step", "close", "observation_space", "action_space"))
    check_spaces(env, factory, ("observation_space", "action_space"))


def check_same_spaces(report: EnvReport, known: EnvReport, factory: str) -> None:
    """Raises InvalidEnvError when an env that was rebuilt has other spaces than the `known` one before it."""
    for name in ("observation_space", "action_space"):
        if getattr(report, name) != getattr(known, name):
            raise InvalidEnvError(
                f"expected {factory} to build an env with the {name} of the one before, "
                f"{getattr(known, name)}, got {getattr(report, name)}"
            )


Reports: TypeAlias = "list[EnvReport | None]"
"""Of some envs; None of one that its first reset builds."""


def report(
    env: Any, observation_space: Space[Any], action_space: Space[Any], computed: Sequence[ColumnSpec] = ()
) -> EnvReport:
    """`observation_space`, `action_space`, `computed`: of a single env."""
    return EnvReport(
        observation_space=observation_space,
        action_space=action_space,
        metadata=dict(getattr(env, "metadata", None) or {}),
        render_mode=getattr(env, "render_mode", None),
        spec=_portable_spec(getattr(env, "spec", None)),
        state=support_of(env),
        computed=tuple(computed),
    )


def _portable_spec(spec: Any) -> EnvSpec | None:
    """None for one that cannot be pickled: its keyword arguments may hold anything."""
    if not isinstance(spec, EnvSpec):
        return None
    try:
        by_value.dumps(spec)
    except Exception:
        return None
    return spec
