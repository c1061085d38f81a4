"""Checks envs that were built, and describes them to the pool."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import gymnasium
import numpy as np
from gymnasium import Space, Wrapper, spaces
from gymnasium.envs.registration import EnvSpec

from remuda._relay.log import logger
from remuda._wire import by_value
from remuda._wire.codec import ColumnSpec, check_agreement
from remuda._wire.computed import check_same
from remuda._wire.env_state import StateSupport
from remuda._wire.exceptions import text_of
from remuda._wire.failures import is_interrupt
from remuda._wire.layout import Agreed, Layout, check_agreed, check_same_rewards
from remuda._worker.env_state import support_of
from remuda._worker.forked_children import OneProcess
from remuda._worker.own_attribute import own_attribute
from remuda._worker.reward_shape import reward_shape_of
from remuda.errors import InvalidEnvError, RemudaError

_TEXT_MODES = ("ansi", "ansi_list")
_MODES_ON_REQUEST = ("rgb_array", "depth_array")  # in which an env draws only when `render` is called
_HAS_CHATTY_WRAPPERS = gymnasium.__version__.startswith("0.")  # they warn of attributes that only the inner env has
_RECORDING = "remuda._videos.attaching"  # the module of `step` if the episodes of an env are recorded
_DRAWING_WRAPPERS = ("AddRenderObservation", "PixelObservationWrapper", "RecordVideo", "RenderCollection")


@dataclass(frozen=True)
class EnvReport:
    """Describes an env that a worker has built.

    `must_agree`: names and values that a face compares among envs, beside their spaces: the property `must_agree` of
    the class in which the face wraps its envs.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None
    state: StateSupport
    computed: tuple[ColumnSpec, ...] = ()  # columns of values that the caller's functions compute
    reward_shape: tuple[int, ...] = ()
    draws: bool = False
    must_agree: Agreed = ()


Reports: TypeAlias = "list[EnvReport | None]"
"""The reports of some envs; None for an env that will be built by its first reset."""


class Missing:
    """Stands in the place of an env that is gone. Its reset and step raise an error."""

    def __init__(self, error: RemudaError) -> None:
        self._error = error

    def reset(self, **_: Any) -> NoReturn:
        raise self._error

    def step(self, _: Any) -> NoReturn:
        self.reset()

    def close(self) -> None:
        pass


def renders(env: Any) -> bool:
    """Returns whether the render mode of an env, or of a report about one, draws pictures. Text modes do not."""
    return getattr(env, "render_mode", None) not in (None, *_TEXT_MODES)


def draws(env: Any) -> bool:
    """Returns whether an env that `renders` also draws without a call of its `render`.

    It does so if its render mode says so, if it observes pictures, or if its episodes are recorded.
    """
    if not renders(env):
        return False
    if env.render_mode not in _MODES_ON_REQUEST or getattr(env.step, "__module__", None) == _RECORDING:
        return True
    if _has_pictures(getattr(env, "single_observation_space", env.observation_space)):
        return True
    layer = env
    while layer is not None and type(layer).__name__ not in _DRAWING_WRAPPERS:
        layer = own_attribute(layer, "env")
    return layer is not None


def _has_pictures(space: Any) -> bool:
    match space:
        case spaces.Dict():
            return any(map(_has_pictures, space.values()))
        case spaces.Tuple():
            return any(map(_has_pictures, space))
        case spaces.Box():
            return space.dtype == np.uint8 and len(space.shape) > 1
    return False


def close_or_warn(env: Any, what: str, *, is_callers: bool = False) -> None:
    """Closes an env. If its `close` raises, only logs that: `what` has happened, and the exception.

    `is_callers`: whether the caller's thread runs the envs. It raises exceptions of signal handlers.
    """
    try:
        with OneProcess():
            env.close()
    except BaseException as error:  # an env that must go is not worth an error of the pool
        if is_callers and is_interrupt(error):
            raise
        logger.warning("%s: %s", what, text_of(error, repr))


def free_closed_env() -> None:
    """Frees a closed env that renders and is no longer referenced, before another one is built.

    An env in a reference cycle stays until the collector runs. That frees its graphics objects by their numbers, which
    the objects of the next env may have by then.
    """
    gc.collect()


def core_of(env: Any) -> Any:
    """Returns the innermost env, `env.unwrapped`; the env itself if it has no such attribute that is an env.

    The class in which a face wraps its envs has the attribute `hosts_env`. Its instances have the env as `env`.
    """
    if hasattr(type(env), "hosts_env"):
        env = env.env
    try:
        core = env.unwrapped
        return core if hasattr(core, "step") else env
    except Exception:  # code of the env, for example a `__getattr__` that recurses for ever
        return env


class BuiltEnvs:
    """The envs that factories have built in one process. Refuses an env that a factory has returned before.

    An env counts until it is freed, so a closed env is refused, too. An env of a class without weak references is not
    checked.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], str]] = {}  # by id of the innermost env: it, and its factory

    def add(self, env: Any, factory: str) -> None:
        """Adds an env that `factory` has built. Several threads may call this.

        Raises:
            InvalidEnvError: This env, or one with the same innermost env, was added before.
        """
        core = core_of(env)
        key = id(core)
        try:
            # The entry goes before the memory of the env, and thereby its id, can be used for another env.
            entry = weakref.ref(core, lambda _: self._known.pop(key, None)), factory
        except TypeError:
            return
        if (known := self._known.setdefault(key, entry)) is not entry:
            other = "as before" if known[1] == factory else f"as {known[1]}"
            raise InvalidEnvError(
                f"expected {factory} to build an env of its own, got the same object {other} (perhaps in another "
                "wrapper); create the env inside the function"
            )


def is_vector_env(env: Any) -> bool:
    """Returns whether `env` is a vector env like Gymnasium's. A mock object with every attribute is no vector env."""
    if _HAS_CHATTY_WRAPPERS and isinstance(env, Wrapper):
        env = core_of(env)
    return isinstance(getattr(env, "num_envs", None), int) and isinstance(
        getattr(env, "single_observation_space", None), Space
    )


def check_names(env: Any, factory: str, kind: str, names: Sequence[str]) -> None:
    """Raises InvalidEnvError if an env lacks one of the attributes `names`, or is a class instead of an instance."""
    lacking = [name for name in names if not hasattr(env, name)]
    if lacking or isinstance(env, type):
        why = f"it has no {', '.join(lacking)}" if lacking else "a class, not yet an env"
        raise InvalidEnvError(f"expected {factory} to return {kind}, got {env!r} ({why})")


def check_spaces(env: Any, factory: str, names: Sequence[str]) -> None:
    """Raises InvalidEnvError if one of the env's attributes `names` is not a space."""
    for name in names:
        if not isinstance(getattr(env, name), Space):
            raise InvalidEnvError(
                f"expected {factory} to return an env whose {name} is a gymnasium.Space, got {getattr(env, name)!r}"
            )


def check_single(env: Any, factory: str) -> None:
    """Raises InvalidEnvError if `env` is not a single env."""
    if is_vector_env(env):
        raise InvalidEnvError(
            f"expected {factory} to return a gymnasium.Env, got the vector env {env!r}; pass vector_size={env.num_envs}"
        )
    check_names(env, factory, "a gymnasium.Env", ("reset", "step", "close", "observation_space", "action_space"))
    check_spaces(env, factory, ("observation_space", "action_space"))


def check_fit(layout: Layout, reports: Sequence[EnvReport], first: int = 0, name: str = "the pool") -> None:
    """Checks that envs have the columns and rewards of a layout. The bounds of their spaces may differ.

    Args:
        layout: The layout of the pool.
        reports: The reports of neighbouring envs.
        first: The id of the first of these envs.
        name: The name of the source of the layout, for errors.

    Raises:
        SpaceMismatchError, InvalidEnvError: Names the envs and the difference.
    """
    check_agreed(layout.must_agree, name, {env: one.must_agree for env, one in enumerate(reports, first)})
    if not layout.any_observation:  # otherwise observations are checked as they arrive
        spaces = [report.observation_space for report in reports]
        check_agreement("observation", layout.observation_space, name, spaces, first)
    check_agreement("action", layout.action_space, name, [report.action_space for report in reports], first)
    check_same(layout.computed, name, {env: report.computed for env, report in enumerate(reports, first)})
    check_same_rewards(layout.reward_shape, name, {env: one.reward_shape for env, one in enumerate(reports, first)})


def report(
    env: Any, observation_space: Space[Any], action_space: Space[Any], computed: Sequence[ColumnSpec] = ()
) -> EnvReport:
    """Returns the report of an env. For a vector env, the other arguments describe one of its single envs."""
    return EnvReport(
        observation_space=observation_space,
        action_space=action_space,
        metadata=dict(getattr(env, "metadata", None) or {}),
        render_mode=getattr(env, "render_mode", None),
        spec=_portable_spec(getattr(env, "spec", None)),
        state=support_of(env),
        computed=tuple(computed),
        reward_shape=reward_shape_of(env),
        draws=draws(env),
        must_agree=env.must_agree if hasattr(type(env), "must_agree") else (),
    )


def _portable_spec(spec: Any) -> EnvSpec | None:
    """Returns an env's spec if it can be pickled, else None: its keyword arguments may hold any objects."""
    if not isinstance(spec, EnvSpec):
        return None
    try:
        by_value.dumps(spec)
    except Exception:
        return None
    return spec
