"""Checks and imports the functions that build envs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn


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

    def refuse(what: str, got: Any) -> NoReturn:
        instead = "write [make_env] * 8, where make_env is a function that returns a new env"
        if isinstance(got, str) and are_gymnasiums:
            instead = f"write [lambda: gymnasium.make({got!r})] * 8, or call remuda.make_vec({got!r}, num_envs=8)"
        raise TypeError(f"expected {what}, got {got!r}; {instead}")

    if isinstance(env_fns, (str, bytes, Mapping)) or not isinstance(env_fns, Iterable):
        refuse(f"{name} to be {or_else}a sequence of functions that build an env each", env_fns)
    factories = list(env_fns)
    for i, env_fn in enumerate(factories):
        if not callable(env_fn):
            refuse(f"{name}[{i}] to be a function that builds an env", env_fn)
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
