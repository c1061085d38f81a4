"""ALF's nests (dicts, tuples, named tuples, lists) and the spaces that the engine lays its columns out for.

The engine knows dicts and tuples. What a nest is beyond that, its specs tell, along which every value is walked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

Nest: TypeAlias = Any
Spec: TypeAlias = Any  # one of ALF's TensorSpec
Convert: TypeAlias = Callable[[Any], Any]


def is_leaf(nest: Nest) -> bool:
    return not isinstance(nest, (dict, tuple, list))


def children(nest: Nest) -> Iterator[tuple[Any, str, Nest]]:
    """Key, how one would write it, and value of each entry."""
    if isinstance(nest, dict):
        for key, child in nest.items():
            yield key, f"[{key!r}]", child
    else:
        names = getattr(nest, "_fields", None)
        for i, child in enumerate(nest):
            yield i, f".{names[i]}" if names else f"[{i}]", child


def is_empty(nest: Nest) -> bool:
    """Whether it has no leaf."""
    return not is_leaf(nest) and all(is_empty(child) for _, _, child in children(nest))


def space_of(spec: Nest, outer: tuple[int, ...] = (), *, bounded: bool = False) -> Space[Any]:
    """The space of nests of this spec, whose leaves have the `outer` axes before their own.

    Args:
        spec: A nest of specs.
        outer: Of a batched env (its batch size,), else ().
        bounded: Whether the bounds of specs count. Columns have none.
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
    """What makes dicts and tuples of a nest; None where it consists of these already (a named tuple is a tuple).

    Empty parts may be of any kind, `()` or `{}`: ALF does not tell them apart.
    """
    if is_leaf(spec):
        return None
    if is_empty(spec):
        empty = space_of(spec).sample()
        return lambda _: empty
    parts = [(key, to_plain(child)) for key, _, child in children(spec)]
    if not isinstance(spec, list) and all(convert is None for _, convert in parts):
        return None
    same = [(key, convert or _as_it_is) for key, convert in parts]
    if isinstance(spec, dict):
        return lambda nest: {key: convert(nest[key]) for key, convert in same}
    return lambda nest: tuple(convert(nest[i]) for i, convert in same)


def from_plain(spec: Nest) -> Convert | None:
    """Returns what makes a nest of the kinds of the spec of dicts and tuples; None if the spec has no other kinds."""
    return None if _is_plain(spec) else converter(spec, _as_it_is)


def _is_plain(spec: Nest) -> bool:
    return is_leaf(spec) or (type(spec) in {dict, tuple} and all(_is_plain(child) for _, _, child in children(spec)))


def converter(spec: Nest, leaf: Convert) -> Convert:
    """Returns what makes a nest of the kinds of the spec of dicts and tuples, and each leaf by `leaf`."""
    if is_leaf(spec):
        return leaf
    parts = [(key, converter(child, leaf)) for key, _, child in children(spec)]
    if isinstance(spec, dict):
        return lambda nest: {key: convert(nest[key]) for key, convert in parts}
    make = maker(spec)
    return lambda nest: make(convert(nest[i]) for i, convert in parts)


def maker(nest: Nest) -> Callable[[Iterator[Any]], Any]:
    """What makes a sequence of that kind."""
    kind = type(nest)
    if hasattr(kind, "_make"):
        return kind._make  # type: ignore[no-any-return]  # of a named tuple
    return kind


def _as_it_is(nest: Nest) -> Nest:
    return nest


def check_nest(spec: Nest, value: Nest, outer: tuple[int, ...], path: str) -> None:
    """Whether a value has the structure of a spec, and its leaves the shapes.

    Raises:
        ValueError: It has not; says what was expected, what came, and where.
    """
    if is_empty(spec) and is_empty(value):
        return
    if is_leaf(spec):
        shape = (*outer, *spec.shape)
        if not is_leaf(value) and not isinstance(value, list):
            raise ValueError(f"expected an array of shape {shape} at {path}, got {value!r}")
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
        raise ValueError(f"expected {expected} at {path}, as the spec says, got {value!r}")
    for key, where, child in children(spec):
        check_nest(child, value[key], outer, path + where)
