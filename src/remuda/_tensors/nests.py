"""Nested dicts, tuples and lists of arrays. Named tuples, as a Graph is one, are objects and stay whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Path = tuple[Any, ...]
"""Keys and indices, from the outside in."""


def arrays_in(nest: Any, path: Path = ()) -> Iterator[tuple[Path, np.ndarray[Any, Any]]]:
    """Each array with its place."""
    if isinstance(nest, dict):
        for key, value in nest.items():
            yield from arrays_in(value, (*path, key))
    elif type(nest) in (tuple, list):
        for i, value in enumerate(nest):
            yield from arrays_in(value, (*path, i))
    elif isinstance(nest, np.ndarray):
        yield path, nest


def with_arrays(nest: Any, leaves: Iterator[Any]) -> Any:
    """The same nest with these in the places of its arrays, in the order of `arrays_in`. Whatever else stays."""
    if isinstance(nest, dict):
        return {key: with_arrays(value, leaves) for key, value in nest.items()}
    if type(nest) in (tuple, list):
        return type(nest)([with_arrays(value, leaves) for value in nest])
    return next(leaves) if isinstance(nest, np.ndarray) else nest


def at(nest: Any, path: Path) -> Any:
    """What a nest of the same form has in that place; None where it has none."""
    for step in path:
        try:
            nest = nest[step]
        except (KeyError, IndexError, TypeError):
            return None
    return nest


def shown(path: Path) -> str:
    """A place as an error names it."""
    return "".join(f"[{step!r}]" for step in path)
