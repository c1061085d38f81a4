"""Arguments as Stable-Baselines3 takes them, in the form that the pool takes."""

from __future__ import annotations

import functools
import multiprocessing
import operator
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from remuda import InvalidActionError
from remuda._factories import check_env_fns

Indices: TypeAlias = int | Iterable[int] | None
StartMethod: TypeAlias = Literal["forkserver", "spawn", "fork"]

REFUSED = {
    "autoreset": "Stable-Baselines3 has an env reset within the step that ends its episode",
    "resets_ahead": "Stable-Baselines3 has an env reset within the step that ends its episode; use spares=",
    "vector_size": "Stable-Baselines3 asks each env for its attributes and wrappers, unlike those in a vector env",
}
"""Options of the pool that make no sense here, and why."""


def check_start_method(method: Any) -> StartMethod | None:
    """Raise ``ValueError`` for what :mod:`multiprocessing` would not know either; ``None`` is the default."""
    if method is not None:
        multiprocessing.get_context(method)
    return method  # type: ignore[no-any-return]


def factories(env_fns: Any, build: Callable[..., Any]) -> list[Callable[[], Any]]:
    """Functions that build these envs by `build`, which is given theirs.

    Raises:
        TypeError: They are no functions, but an env, say.
    """
    return [functools.partial(build, env_fn) for env_fn in check_env_fns(env_fns)]


def env_ids(indices: Indices, num_envs: int) -> list[int]:
    """The envs that are meant: ``None`` is all; -1 is the last; one may be named twice.

    Raises:
        IndexError: there is no such env.
    """
    if indices is None:
        return list(range(num_envs))
    named = indices if isinstance(indices, Iterable) else [indices]
    everybody = range(num_envs)
    try:
        return [everybody[operator.index(index)] for index in named]
    except IndexError:
        raise IndexError(f"expected indices of {num_envs} envs, got {indices!r}") from None


def come_apart(space: Space[Any]) -> bool:
    """Whether actions of this space, one for each env, must be batched before the pool takes them."""
    return isinstance(space, (spaces.Dict, spaces.Tuple))


def batch_actions(space: Space[Any], actions: Any, num_envs: int) -> Any:
    """A sequence with one dict or tuple for each env, as an element of the batched space.

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
