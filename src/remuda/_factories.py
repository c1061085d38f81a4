"""Checks and imports the functions that build envs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium


def check_env_fns(
    env_fns: Any, name: str = "env_fns", *, or_else: str = "", are_gymnasiums: bool = True
) -> list[Callable[..., Any]]:
    """Returns the functions that build envs as a list, after checking them.

    Args:
        env_fns: A sequence or an iterator of functions.
        name: The argument's name.
        or_else: Another kind of value that the argument may have, for the message.
        are_gymnasiums: Whether they build envs that Gymnasium can make by an id.

    Raises:
        TypeError: It is anything else, or contains anything else. The message has the code to write instead.
    """
    expected = f"expected {name} to be {or_else}a sequence of functions that build an env each"
    if isinstance(env_fns, Mapping):
        raise TypeError(f"{expected}, got a {type(env_fns).__name__}; write list({name}.values())")
    if isinstance(env_fns, (str, bytes)) or not _is_iterable(env_fns):
        raise TypeError(f"{expected}, got {env_fns!r}; {_instead(env_fns, are_gymnasiums)}")
    factories = list(env_fns)
    for i, env_fn in enumerate(factories):
        if not callable(env_fn) or _is_env(env_fn):
            instead = _instead(env_fn, are_gymnasiums)
            raise TypeError(f"expected {name}[{i}] to be a function that builds an env, got {env_fn!r}; {instead}")
    return factories


def import_factory(target: str) -> Callable[[], Any]:
    """Imports the factory "module:function". The module may be in the working directory.

    Raises:
        ValueError: There is no such function.
    """
    if os.getcwd() not in sys.path:  # if a script runs, Python adds only the script's folder
        sys.path.insert(0, os.getcwd())
    module, colon, name = target.partition(":")
    if not colon:
        raise ValueError(f"{target}: expected module:function")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{target}: {error}") from error
    if not callable(factory):
        raise ValueError(f"{target}: expected a callable that returns an env, got {factory!r}")
    return factory  # type: ignore[no-any-return]


def _is_iterable(given: Any) -> bool:
    try:
        iter(given)
    except TypeError:
        return False
    return True


def _is_env(given: Any) -> bool:
    return isinstance(given, (gymnasium.Env, gymnasium.vector.VectorEnv))


def _instead(given: Any, are_gymnasiums: bool) -> str:
    """Returns the advice for the error about invalid factories: valid code for eight envs."""
    if isinstance(given, str) and are_gymnasiums:
        return f"write [lambda: gymnasium.make({given!r})] * 8, or call remuda.make_vec({given!r}, num_envs=8)"
    if isinstance(given, (list, tuple)):
        return "write one flat list, without lists in it"
    if callable(given) and not _is_env(given):
        name = getattr(given, "__name__", "")
        return f"write [{name if name.isidentifier() else 'make_env'}] * 8"
    return "write [make_env] * 8, where make_env is a function that returns a new env"
