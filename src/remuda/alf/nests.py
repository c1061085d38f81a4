"""Converts ALF's nests (dicts, tuples, named tuples, lists) for the engine, and their specs to spaces.

The engine supports dicts and tuples only. Values with other kinds are converted with the help of their specs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from remuda._wording import in_brief

Nest: TypeAlias = Any
Spec: TypeAlias = Any  # an `alf.TensorSpec`
Convert: TypeAlias = Callable[[Any], Any]


def is_leaf(nest: Nest) -> bool:
    return not isinstance(nest, (dict, tuple, list))


def children(nest: Nest) -> Iterator[tuple[Any, str, Nest]]:
    """Yields for each entry of a nest: its key, the code that accesses it (such as `[0]`), and its value."""
    if isinstance(nest, dict):
        for key, child in nest.items():
            yield key, f"[{key!r}]", child
    else:
        names = getattr(nest, "_fields", None)
        for i, child in enumerate(nest):
            yield i, f".{names[i]}" if names else f"[{i}]", child


def is_empty(nest: Nest) -> bool:
    """Whether the nest has no leaf."""
    return not is_leaf(nest) and all(is_empty(child) for _, _, child in children(nest))


def space_of(spec: Nest, outer: tuple[int, ...] = (), *, bounded: bool = False) -> Space[Any]:
    """Returns the space of the nests that a spec describes. In each leaf, the `outer` axes come first.

    Args:
        spec: A nest of specs.
        outer: (batch size,) for a batched env, else ().
        bounded: Whether the space has the bounds of the specs. Columns have no bounds.
    """
    if is_leaf(spec):
        return _box(spec, outer, bounded)
    if isinstance(spec, dict):
        return spaces.Dict({key: space_of(child, outer, bounded=bounded) for key, child in spec.items()})
    return spaces.Tuple([space_of(child, outer, bounded=bounded) for child in spec])


def _box(spec: Spec, outer: tuple[int, ...], bounded: bool) -> spaces.Box:
    dtype, shape = np.dtype(spec.dtype_str), (*outer, *spec.shape)
    low: Any
    high: Any
    if bounded and spec.is_bounded():
        low, high = spec.minimum, spec.maximum
    elif dtype.kind == "f":
        low, high = -np.inf, np.inf
    elif dtype.kind == "b":
        low, high = False, True
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = (np.broadcast_to(np.asarray(bound, dtype), shape) for bound in (low, high))
    return spaces.Box(low, high, shape, dtype=dtype.type)


def to_plain(spec: Nest) -> Convert | None:
    """Returns a function that converts nests to dicts and tuples; None if the nests have no other containers.

    Named tuples count as tuples. Empty parts may be of any kind, because ALF does not distinguish `()` and `{}`.
    """
    is_plain = all(isinstance(nest, (dict, tuple)) and not is_empty(nest) for nest in _inner_nests(spec))
    return None if is_plain else converter(spec, _as_it_is, to_plain=True)


def from_plain(spec: Nest) -> Convert | None:
    """Returns a function that converts dicts and tuples to a spec's containers; None if the spec has no others."""
    is_plain = all(type(nest) in {dict, tuple} for nest in _inner_nests(spec))
    return None if is_plain else converter(spec, _as_it_is)


def converter(spec: Nest, leaf: Convert, *, to_plain: bool = False) -> Convert:
    """Returns a function that converts a nest's containers to those in the spec, and applies `leaf` to each leaf.

    With `to_plain` the result has dicts and tuples instead. The function raises ValueError if a tuple or list has
    another length.
    """
    if is_leaf(spec):
        return leaf
    if to_plain and is_empty(spec):
        empty = space_of(spec).sample()
        return lambda _: empty
    parts = [(key, converter(child, leaf, to_plain=to_plain)) for key, _, child in children(spec)]
    if isinstance(spec, dict):
        return lambda nest: {key: convert(nest[key]) for key, convert in parts}
    make: Callable[[Iterator[Any]], Any] = tuple if to_plain else getattr(spec, "_make", type(spec))

    def convert_each(nest: Nest) -> Nest:
        if len(nest) != len(parts):
            raise ValueError(f"{len(nest)} values instead of {len(parts)}")
        return make(convert(nest[i]) for i, convert in parts)

    return convert_each


def _inner_nests(nest: Nest) -> Iterator[Nest]:
    """Yields a nest and all nests inside, but no leaves."""
    if not is_leaf(nest):
        yield nest
        for _, _, child in children(nest):
            yield from _inner_nests(child)


def _as_it_is(nest: Nest) -> Nest:
    return nest


def check_nest(spec: Nest, value: Nest, outer: tuple[int, ...], path: str) -> None:
    """Checks that a value has the structure of a spec, and the shapes of its leaves.

    Raises:
        ValueError: It does not; the message has the path, and both structures or shapes.
    """
    if is_empty(spec) and is_empty(value):
        return
    if is_leaf(spec):
        shape = (*outer, *spec.shape)
        if not is_leaf(value) and not isinstance(value, list):
            raise ValueError(f"expected an array of shape {shape} at {path}, got {in_brief(value)}")
        if np.shape(value) != shape:
            raise ValueError(f"expected an array of shape {shape} at {path}, got one of shape {np.shape(value)}")
        return
    if isinstance(spec, dict):
        fits = isinstance(value, dict) and set(spec) == set(value)
        expected = f"a dict with the keys {sorted(spec)}"
    else:
        fits = isinstance(value, (tuple, list)) and len(value) == len(spec)
        expected = f"{len(spec)} values"
    if not fits:
        raise ValueError(f"expected {expected} at {path}, as the spec says, got {in_brief(value)}")
    for key, where, child in children(spec):
        check_nest(child, value[key], outer, path + where)
