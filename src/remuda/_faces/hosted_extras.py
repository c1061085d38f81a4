"""Envs that a face hosts in an object of its own, and the option `extras` for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from remuda import StepColumn
from remuda._factories import check_env_fns


def hosting(build: Callable[[Callable[[], Any]], Any], env_fns: Any) -> list[Callable[[], Any]]:
    """Wraps factories of envs as factories of their hosts. Raises TypeError if one is not a function.

    `build`: returns the host of the env that a factory returns; the env is its attribute `env`.
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


def _compute(function: Callable[[Any], Any], host: Any) -> Any:
    return function(host.env)
