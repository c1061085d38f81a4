"""Nests of action tensors, in the form that the engine takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from remuda.alf.errors import InvalidActionError
from remuda.alf.nests import Convert, Nest, children, is_leaf


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
