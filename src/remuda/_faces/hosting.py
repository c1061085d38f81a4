"""Envs that a face hosts in objects of its own in the workers: their base, calls of them, and the option `extras`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from remuda import StepColumn
from remuda._factories import check_env_fns
from remuda._wire.requests import reading

__all__ = ["reading"]  # for functions of faces that only read an env


class HostedEnv:
    """The base of objects that host an env in a worker and give it the methods that a pool calls.

    Attributes:
        hosts_env: Marks the class. The pool looks through the host when it compares envs.
        env: The env.
    """

    hosts_env = True
    env: Any = None

    def before_call(self) -> None:
        """Prepares the env for a call. Does nothing unless a face overrides it."""

    def close(self) -> None:
        """Closes the env, once."""
        env, self.env = self.env, None
        if env is not None:
            env.close()

    def __repr__(self) -> str:
        return repr(self.env)


def hosting(build: Callable[[Callable[[], Any]], Any], env_fns: Any) -> list[Callable[[], Any]]:
    """Wraps factories of envs as factories of their hosts. Raises TypeError if one is not a function.

    `build`: returns the `HostedEnv` of the env that a factory returns.
    """
    return [partial(build, env_fn) for env_fn in check_env_fns(env_fns)]


def extras_of_hosted(extras: Any) -> tuple[Any, dict[str, Callable[[Any], Any] | StepColumn]]:
    """Wraps the functions in the option `extras`, which expect the env itself, for hosts.

    Returns the option and the wrapped functions and step columns. An invalid option is returned unchanged: the pool
    refuses it.
    """
    if not isinstance(extras, Mapping):
        return extras, {}
    columns, functions = dict(extras), dict[str, Callable[[Any], Any] | StepColumn]()
    for name, column in extras.items():
        if isinstance(column, StepColumn):
            if callable(column.function):
                functions[name] = columns[name] = replace(column, function=partial(_compute, column.function))
            continue
        is_declared = isinstance(column, tuple) and len(column) == 2
        function = column[0] if is_declared else column
        if callable(function):
            functions[name] = partial(_compute, function)
            columns[name] = (functions[name], column[1]) if is_declared else functions[name]
    return columns, functions


def _compute(function: Callable[[Any], Any], hosted: HostedEnv) -> Any:
    return function(hosted.env)


# -- calls, which run in the workers ---------------------------------------------------------------------


def called_env(hosted: Any) -> Any:
    """Returns the env for a call. An env of a pool that the caller has made is its own host."""
    if not isinstance(hosted, HostedEnv):
        return hosted
    hosted.before_call()
    return hosted.env


@reading
def get_attribute(hosted: Any, name: str) -> Any:
    """Returns the attribute of the outermost wrapper that has it. Wrappers of vector envs forward by themselves."""
    env = called_env(hosted)
    return env.get_wrapper_attr(name) if hasattr(type(env), "get_wrapper_attr") else getattr(env, name)


def set_attribute(hosted: Any, name: str, value: Any) -> None:
    """Sets the attribute on the outermost wrapper, even if an inner one has it."""
    setattr(called_env(hosted), name, value)


def call_method(hosted: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the method of the outermost wrapper that has it."""
    return get_attribute(hosted, name)(*args, **kwargs)
