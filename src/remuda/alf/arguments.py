"""Arguments as ALF has them, in the form that the engine takes: options, and nests of action tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from remuda import PoolOptions
from remuda.alf.errors import InvalidActionError
from remuda.alf.nests import Convert, Nest, children, is_leaf

T = TypeVar("T", bound=type[Any])

REFUSED = {
    "autoreset": "in ALF an env whose episode is over is reset by the next step, which is FIRST",
    "extras": "in ALF what is computed of an env is in its time steps: put it into the observation or env_info",
    "observation_space": "rows are laid out for the envs' specs",
    "resets_ahead": "envs always reset ahead, unless max_concurrency= or blocking= holds them back",
    "seeding": "call seed(), which gives each env's own seed() what it was given",
    "spares": "use num_spare_envs_for_reload=",
    "starts_serially": "use start_serially=",
    "threads_per_worker": "use torch_num_threads_per_env=",
    "vector_size": "envs that are batched themselves say so by their batch_size",
}
"""Options of the pool that have another name in ALF, or no meaning."""


def configured_by_name(cls: T) -> T:
    """A decorator of classes under ``alf.configurable``: has their signature name each of the pool's options.

    ALF's configuration knows the parameters of a constructor that its signature names, and no ``**options``.
    """
    constructor: Any = cls.__init__
    signature = inspect.signature(constructor)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    names = PoolOptions.__annotations__.keys() - REFUSED.keys() - signature.parameters.keys()
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in sorted(names)]
    constructor.__signature__ = signature.replace(parameters=[*own, *options])
    return cls


# -- actions ---------------------------------------------------------------------------------------------


def action_reader(spec: Nest, num_envs: int, outer: tuple[int, ...]) -> Callable[[Nest], Nest]:
    """What makes arrays, nested as the engine wants them, of a nest of tensors (or arrays) with a row for each env.

    It raises InvalidActionError where these are of another structure; of numbers, shapes and dtypes the engine tells.
    `outer`: of a batched env (its batch size,), else ().
    """
    shape = (num_envs, *outer) if outer else None
    convert = _array_maker(spec, shape)

    def read(actions: Nest) -> Nest:
        try:
            return convert(actions)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InvalidActionError(f"expected actions of {spec}, got {actions!r} ({error!r})") from error

    return read


def _array_maker(spec: Nest, shape: tuple[int, ...] | None) -> Convert:
    if is_leaf(spec):
        if shape is None:
            return _array
        return lambda rows: _divided(_array(rows), shape)
    parts = [(key, _array_maker(child, shape)) for key, _, child in children(spec)]
    if isinstance(spec, dict):
        return lambda nest: {key: convert(nest[key]) for key, convert in parts}

    def convert_each(nest: Nest) -> Nest:
        if len(nest) != len(parts):
            raise ValueError(f"{len(nest)} values instead of {len(parts)}")
        return tuple(convert(nest[i]) for i, convert in parts)

    return convert_each


def _array(rows: Any) -> Any:
    return rows.numpy(force=True) if isinstance(rows, torch.Tensor) else np.asarray(rows)


def _divided(rows: Any, shape: tuple[int, ...]) -> Any:
    """By envs, each of which takes several rows."""
    return rows.reshape(*shape, *rows.shape[1:])
