"""Arguments as Stable-Baselines3 takes them, in the form that the pool takes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array

from remuda import InvalidActionError
from remuda._factories import check_env_fns
from remuda.sb3 import worker

Indices: TypeAlias = int | Iterable[int] | None


def hosting(env_fns: Any) -> list[Callable[[], worker.HostedEnv]]:
    """Returns functions that build what hosts each env. Raises TypeError for anything but functions, such as an env."""
    return [functools.partial(worker.build, env_fn) for env_fn in check_env_fns(env_fns)]


def extras_of_hosted(extras: Any) -> tuple[Any, dict[str, Callable[[worker.HostedEnv], Any]]]:
    """Returns the pool's option `extras` with functions of the hosted env, and these functions by name.

    Anything that is not such an option is left for the pool to refuse.
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


def positions(indices: Indices, num_envs: int) -> list[int]:
    """Returns the envs that are meant: ``None`` is all; -1 is the last; one may be named twice.

    Raises:
        IndexError: there is no such env.
    """
    every = range(num_envs)
    if indices is None:
        return list(every)
    try:
        return [every[operator.index(index)] for index in (indices if isinstance(indices, Iterable) else [indices])]
    except IndexError:
        raise IndexError(f"expected indices of {num_envs} envs, got {indices!r}") from None


def batch_actions(space: Space[Any], actions: Any, num_envs: int) -> Any:
    """Makes an element of the batched space of a sequence with one dict or tuple for each env.

    Raises:
        InvalidActionError: Another number of actions than envs, or one that does not fit.
    """
    each = list(actions)
    if len(each) != num_envs:
        raise InvalidActionError(f"expected {num_envs} actions, one for each env, got {len(each)}")
    try:
        return concatenate(space, each, create_empty_array(space, num_envs))  # type: ignore[arg-type]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidActionError(f"expected actions of {space}, got {each!r} ({error!r})") from error
