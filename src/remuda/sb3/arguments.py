"""Converts arguments of Stable-Baselines3's vector env to those of a pool."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array

from remuda import InvalidActionError
from remuda._factories import check_env_fns
from remuda.sb3 import worker


def hosting(env_fns: Any) -> list[Callable[[], worker.HostedEnv]]:
    """Wraps factories of envs as factories of `HostedEnv`. Raises TypeError if one is not a function."""
    return [functools.partial(worker.build, env_fn) for env_fn in check_env_fns(env_fns)]


def extras_of_hosted(extras: Any) -> tuple[Any, dict[str, Callable[[worker.HostedEnv], Any]]]:
    """Wraps the functions in the option `extras` for a `HostedEnv`. Returns the option and the wrapped functions.

    An invalid option is returned unchanged: the pool refuses it.
    """
    if not isinstance(extras, Mapping):
        return extras, {}
    columns = dict(extras)
    functions: dict[str, Callable[[worker.HostedEnv], Any]] = {}
    for name, column in extras.items():
        is_declared = isinstance(column, tuple) and len(column) == 2
        function = column[0] if is_declared else column
        if callable(function):
            functions[name] = functools.partial(worker.compute, function)
            columns[name] = (functions[name], column[1]) if is_declared else functions[name]
    return columns, functions


def batch_actions(space: Space[Any], actions: Any, num_envs: int) -> Any:
    """Batches actions: converts a sequence with a dict or tuple for each env to an element of the batched space.

    Raises:
        InvalidActionError: The number of actions is not that of envs, or an action does not fit.
    """
    each = list(actions)
    if len(each) != num_envs:
        raise InvalidActionError(f"expected {num_envs} actions, one for each env, got {len(each)}")
    try:
        return concatenate(space, each, create_empty_array(space, num_envs))  # type: ignore[arg-type]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidActionError(f"expected actions of {space}, got {each!r} ({error!r})") from error
