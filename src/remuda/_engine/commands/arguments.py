"""Checks the arguments of the pool's calls. Each error names the argument, the expected values and the given one."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from remuda._wire.layout import Layout
from remuda._wire.pickling import Buffers, dump
from remuda.errors import InvalidActionError


def check_env_ids(env_ids: Iterable[Any], known: Sequence[int]) -> list[int]:
    """Returns the env ids as ints. `known`: all valid ids, ascending.

    Raises:
        TypeError: They are not ints; a mask of bools is refused too.
        ValueError: One is out of range, or occurs twice.
    """
    whole = known[-1] - known[0] == len(known) - 1
    expected = f"expected env_ids to be distinct ints {f'from {known[0]} to {known[-1]}' if whole else f'of {known}'}"
    try:
        ids = [_index(env_id) for env_id in env_ids]
    except TypeError:
        mask = "; for a mask, pass numpy.flatnonzero(mask)" if getattr(env_ids, "dtype", None) == np.bool_ else ""
        raise TypeError(f"{expected}, got {reprlib.repr(env_ids)}{mask}") from None
    if len(set(ids)) != len(ids) or not set(ids).issubset(known):
        valid, first = set(known), {env_id: i for i, env_id in reversed([*enumerate(ids)])}
        wrong = next(i for i, env_id in enumerate(ids) if env_id not in valid or first[env_id] < i)
        again = " again" if ids[wrong] in valid else ""
        raise ValueError(f"{expected}, got {ids[wrong]}{again} at env_ids[{wrong}]")
    return ids


def check_whole(env_ids: Sequence[int], layout: Layout) -> None:
    """Checks that `env_ids` names whole vector envs, each by the ids of all its envs, in order.

    Raises:
        ValueError: It does not. The message names the first env that is out of place.
    """
    for its in layout.by_env(env_ids):
        whole = list(layout.ids_with(its[0]))
        if list(its) != whole:
            raise ValueError(
                f"expected env_ids to name whole vector envs, each one's envs in order, got env {its[0]} in "
                f"{list(its)} where {whole} belong together"
            )


def check_common(what: str, values: Sequence[Any], env_ids: Sequence[int], layout: Layout) -> None:
    """Checks that `values`, one for each of `env_ids`, are equal within each vector env.

    Raises:
        ValueError: Two values differ. The message names their envs.
    """
    firsts: dict[range, int] = {}  # the index in `values` of each vector env's first value
    for i, env_id in enumerate(env_ids):
        first = firsts.setdefault(layout.ids_with(env_id), i)
        if not _is_equal(values[i], values[first]):
            raise ValueError(
                f"expected the same {what} for all envs of a vector env, got {values[first]!r} for env "
                f"{env_ids[first]} and {values[i]!r} for env {env_id}"
            )


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two nested values are equal. Arrays are equal if all their elements are."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other)


def check_limit(name: str, limit: Any, vector_size: int | None = None) -> None:
    """Checks a number of envs that a caller gives. It must be a multiple of `vector_size`."""
    try:
        good = limit is None or _index(limit) >= 0
    except TypeError:
        raise TypeError(f"expected {name} to be an int or None, got {limit!r}") from None
    if not good:
        raise ValueError(f"expected {name} to be at least 0, or None, got {limit}")
    if limit is not None and vector_size is not None and limit % vector_size != 0:
        raise ValueError(f"expected {name} to be a multiple of vector_size={vector_size}, or None, got {limit}")


def check_rollout(steps: Any, layout: Layout) -> None:
    """Checks that the pool's envs can fill a rollout with this number of steps.

    Raises:
        TypeError: The number is not an int.
        ValueError: It is below 1, or rollouts do not support the spaces or the autoreset mode.
        NotImplementedError: This system has no memory for rollouts.
    """
    try:
        is_one = _index(steps) >= 1
    except TypeError:
        raise TypeError(f"expected steps to be an int, got {steps!r}") from None
    if not is_one:
        raise ValueError(f"expected steps to be at least 1, got {steps}")
    if layout.mode.why_no_rollout is not None:
        raise ValueError(
            f"expected autoreset='next_step' or 'same_step' for a rollout, got {layout.autoreset!r}: "
            f"{layout.mode.why_no_rollout}"
        )
    for name, codec in (("observation", layout.observation), ("action", layout.action)):
        if codec.objects:
            path, kind = codec.objects[0]
            raise ValueError(
                f"expected an {name} space of arrays for a rollout, got a {kind.__name__} at {name}{path}: "
                "it has no column"
            )
    if layout.rollout_rows == 0:
        raise NotImplementedError("expected Linux for a rollout, whose memory is reserved while the pool runs")


def check_order(order: Any) -> None:
    if order not in ("arrival", "slot"):
        raise ValueError(f"expected order to be 'arrival' or 'slot', got {order!r}")


def dump_objects(rows: list[list[Any]], env_ids: Sequence[int]) -> list[Buffers]:
    """Pickles the values in each env's action that have no column."""
    blobs = []
    for env_id, row in zip(env_ids, rows, strict=True):
        try:
            blobs.append(dump(row))
        except Exception as error:
            raise InvalidActionError(
                f"expected actions that can be pickled, got {row!r} for env {env_id} ({error})"
            ) from error
    return blobs


def _index(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):  # a caller may pass a bool mask; NumPy 1 would accept bools as ints
        raise TypeError
    return operator.index(value)
