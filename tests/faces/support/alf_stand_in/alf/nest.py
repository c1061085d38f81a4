"""Functions for nests. Dicts and named tuples are sorted by key or field name; lists and tuples keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def flatten(nest: Any) -> list[Any]:
    return [leaf for child in _children(nest) for leaf in flatten(child)] if _is_nest(nest) else [nest]


def pack_sequence_as(nest: Any, flat_seq: Sequence[Any]) -> Any:
    return _pack(nest, iter(flat_seq))


def map_structure(func: Callable[..., Any], *nests: Any) -> Any:
    return pack_sequence_as(nests[0], [func(*leaves) for leaves in zip(*map(flatten, nests), strict=True)])


def _is_nest(nest: Any) -> bool:
    return isinstance(nest, (dict, tuple, list))


def _keys(nest: Any) -> list[Any]:
    if isinstance(nest, dict):
        return sorted(nest)
    names = getattr(nest, "_fields", None)
    return sorted(range(len(nest)), key=names.__getitem__) if names else list(range(len(nest)))


def _children(nest: Any) -> list[Any]:
    return [nest[key] for key in _keys(nest)]


def _pack(nest: Any, leaves: Iterator[Any]) -> Any:
    if not _is_nest(nest):
        return next(leaves)
    packed = {key: _pack(nest[key], leaves) for key in _keys(nest)}
    if isinstance(nest, dict):
        return type(nest)(packed)
    ordered = [packed[i] for i in range(len(nest))]
    return type(nest)(*ordered) if hasattr(nest, "_fields") else type(nest)(ordered)
