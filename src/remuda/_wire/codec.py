"""Translates between values of a Gymnasium space and columns.

A space is flattened into a tree. Its leaves are either *columns* (arrays of one dtype and shape in shared memory)
or *objects* (Text, Graph, Sequence, OneOf, custom spaces), which are sent pickled.
The order is depth first, and a Dict's keys come in the space's own order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces

from remuda._wording import in_brief, name_some
from remuda.errors import InvalidActionError, SpaceMismatchError

Leaves: TypeAlias = tuple[Any, ...]  # each column's (path, dtype, shape), then each object's (path, class).
Choices: TypeAlias = "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None"
"""The lowest and the highest choice for each number of an element, or for all of them."""

Nest: TypeAlias = Any  # ("column", i) | ("object", j) | ("dict", ((key, Nest), ...)) | ("tuple", (Nest, ...))


@dataclass(frozen=True)
class ColumnSpec:
    """A column: its path, dtype and shape."""

    path: str  # the place of the leaf in the space, such as "['camera'][0]"
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    choices: Choices = None  # the inclusive bounds of a discrete space

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class SpaceCodec:
    """Flattens and rebuilds the elements of one space.

    Attributes:
        columns: The array leaves, in order.
        nest: The tree, in the form that the core takes.
        objects: The path and the class of each leaf that has no column.
        leaves: The path, dtype and shape of each column, and the path and class of each object, as plain values.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.columns: list[ColumnSpec] = []
        self.objects: list[tuple[str, type[Space[Any]]]] = []
        self.nest: Nest = self._plan(space, "")
        self.is_single_column = self.nest == ("column", 0)
        columns = ((column.path, column.dtype.str, column.shape) for column in self.columns)
        self.leaves: Leaves = (*columns, *((path, kind.__qualname__) for path, kind in self.objects))

    def _plan(self, space: Space[Any], path: str) -> Nest:
        if isinstance(space, spaces.Dict):
            return "dict", tuple((key, self._plan(sub, f"{path}[{key!r}]")) for key, sub in space.spaces.items())
        if isinstance(space, spaces.Tuple):
            return "tuple", tuple(self._plan(sub, f"{path}[{i}]") for i, sub in enumerate(space.spaces))
        if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            assert space.dtype is not None and space.shape is not None  # never None in these classes
            self.columns.append(ColumnSpec(path, np.dtype(space.dtype), space.shape, _choices(space)))
            return "column", len(self.columns) - 1
        self.objects.append((path, type(space)))
        return "object", len(self.objects) - 1

    @property
    def num_objects(self) -> int:
        return len(self.objects)

    def difference(self, other: SpaceCodec) -> str | None:
        """Describes how the columns and objects of another space differ; None if they are alike."""
        if self.nest != other.nest:
            return "another structure"
        for column, found in zip(self.columns, other.columns, strict=True):
            if column.shape != found.shape:
                return f"shape {found.shape} instead of {column.shape}{_at(column.path)}"
            if column.dtype != found.dtype:
                return f"dtype {found.dtype} instead of {column.dtype}{_at(column.path)}"
        for (path, kind), (_, found_kind) in zip(self.objects, other.objects, strict=True):
            if found_kind is not kind:
                return f"{found_kind.__name__} instead of {kind.__name__}{_at(path)}"
        return None

    # -- one element of the space ----------------------------------------------------------------------

    def flatten(
        self, value: Any, name: str = "obs", error: Callable[[str], Exception] = ValueError
    ) -> tuple[list[np.ndarray[Any, Any]], list[Any]]:
        """Returns (arrays, objects), the leaves of one element. Each array has its column's dtype and shape.

        Raises `error` if the value does not fit. The text has the expected and the given value, and the path.
        """
        if self.is_single_column:
            (column,) = self.columns
            return [coerce(value, column.dtype, column.shape, name, error)], []
        arrays, objects = self._split(value, name, error)
        return arrays, [leaf for leaf, _ in objects]

    def _split(
        self, value: Any, name: str, error: Callable[[str], Exception], rows: int | None = None
    ) -> tuple[list[np.ndarray[Any, Any]], list[tuple[Any, str]]]:
        """Returns (arrays, the object and the path of each leaf that has no column). `rows`: see `coerce`."""
        arrays: list[np.ndarray[Any, Any]] = []
        objects: list[tuple[Any, str]] = []
        for kind, index, leaf, path in _walk(self.nest, value, name, error):
            if kind == "object":
                objects.append((leaf, path))
            else:
                column = self.columns[index]
                arrays.append(coerce(leaf, column.dtype, column.shape, path, error, rows, column.choices))
        return arrays, objects

    # -- a batch of elements ---------------------------------------------------------------------------

    def build_batch(self, arrays: Sequence[Any], objects: Sequence[Sequence[Any]]) -> Any:
        """Returns a batched element. `arrays`: an (n, *shape) array for each column; `objects`: a list for each env."""
        if self.is_single_column:
            return arrays[0]
        return _build(self.nest, lambda i: arrays[i], lambda j: tuple(row[j] for row in objects))

    def gather(self, parts: Sequence[tuple[Any, list[int] | None]], order: Any = None) -> Any:
        """Returns a batched element of copied rows.

        `parts`: batched elements, and the rows to take from each; None: all. `order`: that of all these rows in the
        result; None: as they are taken.
        """
        return _gather(self.nest, [batch for batch, _ in parts], [rows for _, rows in parts], order)

    def build_one(self, leaves: Sequence[Any], objects: Sequence[Any]) -> Any:
        """Builds one element of the space from its leaves. Copies the arrays."""
        return build(self.nest, [leaf.copy() for leaf in leaves], objects)

    def copy_one(self, value: Any, name: str = "obs") -> Any:
        """Returns a copy of an element of the space. Raises ValueError if the element does not fit the space."""
        leaves, objects = self.flatten(value, name)
        return self.build_one(leaves, copy.deepcopy(objects))

    def split_batch(
        self, batch: Any, n: int, name: str = "actions"
    ) -> tuple[list[np.ndarray[Any, Any]], list[list[Any]] | None]:
        """Splits a batch of `n` actions into an (n, *shape) array for each column, and the objects of each env.

        Errors name the batch by `name`.

        The first axis must have length n; after it, axes of length 1 may be missing or added. Checks structure, number,
        shape, dtype, and the range of discrete choices. It does not check the bounds of a Box, because envs usually
        clip.

        Raises:
            InvalidActionError: The batch does not fit. The text has the expected and the given value, and the path.
        """
        arrays, per_env = self.flatten_batch(batch, n, name, InvalidActionError)
        self.check_choices(arrays, name)
        return arrays, per_env

    def check_choices(self, arrays: Sequence[np.ndarray[Any, Any]], name: str) -> None:
        """Checks the range of discrete choices. `arrays`: the columns of an action, or of a batch of actions.

        Raises:
            InvalidActionError: An action is outside. The text has the bounds, the given value, and the path.
        """
        for column, array in zip(self.columns, arrays, strict=True):
            if column.choices is None:
                continue
            outside = (array < column.choices[0]) | (array > column.choices[1])
            if outside.any():
                low, high = (np.broadcast_to(bound, array.shape) for bound in column.choices)
                where = np.unravel_index(int(outside.argmax()), array.shape)
                at = f"{name}{column.path}{''.join(f'[{i}]' for i in where)}"
                raise InvalidActionError(
                    f"expected {low[where]} <= action <= {high[where]} at {at}, got {array[where]}"
                )

    def columns_of(self, batch: Any, n: int) -> list[np.ndarray[Any, Any]]:
        """Returns the arrays of `split_batch`, for a space that has no objects."""
        return self.split_batch(batch, n)[0]

    def flatten_batch(
        self, batch: Any, n: int, name: str, error: Callable[[str], Exception] = ValueError
    ) -> tuple[list[np.ndarray[Any, Any]], list[list[Any]] | None]:
        """Splits a batch like `split_batch`, without checking discrete choices. Raises `error` if it does not fit."""
        arrays, objects = self._split(batch, name, error, n)
        for leaf, path in objects:
            if not isinstance(leaf, Sequence) or isinstance(leaf, (str, bytes)) or len(leaf) != n:
                raise error(f"expected a sequence of {n} at {path}, one for each env, got {_brief(leaf)}")
        return arrays, [[leaf[i] for leaf, _ in objects] for i in range(n)] if objects else None


def check_agreement(
    kind: str, reference: Space[Any], reference_name: str, spaces: Sequence[Space[Any]], first: int = 0
) -> None:
    """Checks that the spaces of envs have equal columns: their structure, shapes and dtypes. Their bounds may differ.

    Args:
        kind: "observation" or "action", for the error.
        reference, reference_name: The expected space, and the name of its source.
        spaces: The spaces of neighbouring envs.
        first: The id of the first of these envs.

    Raises:
        SpaceMismatchError: Names the envs and the difference.
    """
    expected = SpaceCodec(reference)
    differing: dict[str, list[int]] = {}
    for env_id, space in enumerate(spaces, first):
        if space is reference or space == reference:
            continue
        if difference := expected.difference(SpaceCodec(space)):
            differing.setdefault(f"{difference} ({space})", []).append(env_id)
    if differing:
        details = "; ".join(f"{name_some('env', ids)}: {what}" for what, ids in differing.items())
        raise SpaceMismatchError(
            f"expected every {kind} space to have the structure, shapes and dtypes of {reference_name}'s, {reference}; "
            f"got {details}",
            kind,
            spaces,
        )


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _walk(nest: Nest, value: Any, path: str, error: Callable[[str], Exception]) -> Iterator[tuple[str, int, Any, str]]:
    """Yields (kind, index, value, path) of each leaf. Raises `error` if the value has another structure."""
    kind, body = nest
    if kind == "dict":
        if not isinstance(value, Mapping) or any(key not in value for key, _ in body):
            raise error(f"expected a dict with the keys {[key for key, _ in body]} at {path}, got {_brief(value)}")
        for key, child in body:
            yield from _walk(child, value[key], f"{path}[{key!r}]", error)
    elif kind == "tuple":
        if not isinstance(value, (tuple, list)) or len(value) != len(body):
            raise error(f"expected a tuple of {len(body)} at {path}, got {_brief(value)}")
        for i, child in enumerate(body):
            yield from _walk(child, value[i], f"{path}[{i}]", error)
    else:
        yield kind, body, value, path


def build(nest: Nest, leaves: Sequence[Any], objects: Sequence[Any]) -> Any:
    """Builds one element of the space of a codec that has this `nest`. The element shares the memory of its leaves."""
    return _build(nest, lambda i: leaves[i], lambda j: objects[j])


def _build(nest: Nest, column: Callable[[int], Any], obj: Callable[[int], Any]) -> Any:
    kind, body = nest
    if kind == "dict":
        return {key: _build(child, column, obj) for key, child in body}
    if kind == "tuple":
        return tuple(_build(child, column, obj) for child in body)
    return column(body) if kind == "column" else obj(body)


def _gather(nest: Nest, batches: Sequence[Any], rows: Sequence[list[int] | None], order: Any) -> Any:
    kind, body = nest
    if kind == "dict":
        return {key: _gather(child, [batch[key] for batch in batches], rows, order) for key, child in body}
    if kind == "tuple":
        return tuple(_gather(child, [batch[i] for batch in batches], rows, order) for i, child in enumerate(body))
    pairs = list(zip(batches, rows, strict=True))
    if kind == "object":
        values = [one for batch, theirs in pairs for one in (batch if theirs is None else [batch[i] for i in theirs])]
        return tuple(values if order is None else [values[i] for i in order])
    if len(pairs) == 1 and order is None:
        return batches[0].copy() if rows[0] is None else batches[0][rows[0]]
    whole = np.concatenate([batch if theirs is None else batch[theirs] for batch, theirs in pairs])
    return whole if order is None else whole[order]


def _choices(space: Space[Any]) -> Choices:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        numbers = space.n if isinstance(space, spaces.Discrete) else space.nvec
        return np.asarray(space.start), np.asarray(space.start + (numbers - 1))
    if isinstance(space, spaces.MultiBinary):
        return np.zeros((), space.dtype), np.ones((), space.dtype)
    return None


def coerce(
    value: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    path: str,
    error: Callable[[str], Exception],
    rows: int | None = None,
    choices: Choices = None,
) -> np.ndarray[Any, Any]:
    """Returns `value` as an array of this dtype and shape in C order. Raises `error` if the cast loses information.

    Axes of length 1 may be missing or added. `rows`: the length of the first axis, before those of `shape`; None: there
    is no such axis. `choices`: those of the column, for the error.
    """
    if rows is not None:
        shape = (rows, *shape)
    if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape and value.flags.c_contiguous:
        return value
    try:
        array = np.asarray(value)
    except Exception as unusable:  # `from None`, because the new error contains the message
        raise error(f"expected {_array(dtype, shape)} at {path}, got {_brief(value)} ({unusable})") from None
    has_rows = rows is None or array.shape[:1] == shape[:1]
    if array.shape != shape and has_rows and _without_unit_axes(array.shape) == _without_unit_axes(shape):
        array = array.reshape(shape)
    if array.shape != shape:
        got = _brief(value, array.shape)
        raise error(
            f"expected {_array(dtype, shape)} at {path}, got {got}{_of_one_hot(array.shape, shape, choices, path)}"
        )
    if array.dtype == object or not _fits(array, dtype):
        raise error(f"expected {_array(dtype, shape)} at {path}, got {_brief(value)}{_misfit(value, dtype, path)}")
    return np.asarray(array, dtype=dtype, order="C")


def _fits(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> bool:
    """Returns whether a cast to `dtype` is allowed. A cast to another dtype than floats must keep all values."""
    if np.can_cast(array.dtype, dtype) or (dtype.kind == "f" and np.can_cast(array.dtype, dtype, "same_kind")):
        return True
    if array.dtype.kind not in "biuf" or dtype.kind not in "biuf":
        return False
    with np.errstate(invalid="ignore"):
        return bool((array.astype(dtype) == array).all())


def _misfit(value: Any, dtype: np.dtype[Any], path: str) -> str:
    """Describes the first of the values that does not fit this dtype."""
    array = np.asarray(value)
    if array.dtype.kind in "biuf" and dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            misfits = array.astype(dtype) != array
    else:
        array = np.asarray(value, dtype=object)  # otherwise, a string among numbers would turn all values into strings
        misfits = np.array([not _fits_alone(one, dtype) for one in array.flat], bool).reshape(array.shape)
    if not misfits.any():
        return ""
    where = tuple(int(i) for i in np.unravel_index(int(misfits.argmax()), array.shape))
    at, one = "".join(f"[{i}]" for i in where), array[where]
    return f", in which {path}{at} is {one.item() if isinstance(one, np.generic) else one!r}"


def _fits_alone(one: Any, dtype: np.dtype[Any]) -> bool:
    array = np.asarray(one)
    return array.dtype != object and _fits(array, dtype)


def _without_unit_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"an array of shape {shape} and dtype {dtype}"


def _of_one_hot(got: tuple[int, ...], shape: tuple[int, ...], choices: Choices, path: str) -> str:
    """Returns the remedy for one-hot rows in the place of choices, such as those of a Discrete space; else ""."""
    if choices is None or got[:-1] != shape or not (choices[1] - choices[0] + 1 == got[-1]).all():
        return ""
    start = f" + {choices[0].flat[0]}" if choices[0].any() else ""
    return f"; instead of one-hot rows, pass numpy.argmax({path}, -1){start}"


def _brief(value: Any, shape: tuple[int, ...] | None = None) -> str:
    if isinstance(value, np.ndarray):
        return _array(value.dtype, value.shape)
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {list(value)}"
    kind = "" if isinstance(value, (list, tuple)) else f"{type(value).__name__}: "
    return kind + in_brief(value, shape)
