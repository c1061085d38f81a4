"""Infos: conversion from columns and pickles to dicts, and to stacked arrays in Gymnasium's format."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from arena_views import leaves
from gymnasium.vector import VectorEnv
from pool_envs import assert_same

from remuda import EnvError, EnvProgress, Failure, Fault, Infos, _core
from remuda._engine.batches.infos import InfoColumns, MadeRow, PickledRows
from remuda._wire.info_columns import InfoColumn, InfoField, field_of


def pickled(raw: Any) -> PickledRows:
    return PickledRows(raw, lambda nanoseconds: None)


def stack_with_gymnasium(infos: list[dict[Any, Any]]) -> dict[Any, Any]:
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = len(infos)
    stacked: dict[Any, Any] = {}
    for i, info in enumerate(infos):
        stacked = envs._add_info(stacked, info, i)
    return stacked


def a_reader() -> _core.InfoReader:
    """Returns a reader with columns for episode statistics and an array."""
    book, reader = InfoColumns(room=10_000), _core.InfoReader()
    fields = [(("episode", "r"), 1.5), (("episode", "l"), 3), ("pos", np.zeros(2))]
    for column in book.assign([new_field(path, value) for path, value in fields]):
        reader.add(column.path, column.type)
    return reader


def stacked_by(reader: _core.InfoReader, numbers: list[float]) -> dict[str, Any]:
    """Returns the stacked infos of envs that end their episodes with these numbers. The first env has an empty info."""
    values = np.array(numbers)
    mask = np.full(len(values), 7, np.uint64)
    mask[0] = 0
    arrays = [values, values.astype(np.int64), np.stack([values, values], axis=1)]
    return Infos(mask, reader, arrays, pickled({}), lambda row: None).stack()


def expected_of(numbers: list[float]) -> dict[str, Any]:
    infos = [{"episode": {"r": n, "l": int(n)}, "pos": np.array([n, n])} for n in numbers]
    return stack_with_gymnasium([{}, *infos[1:]])


@pytest.mark.parametrize("keep", [lambda array: array, lambda array: array[1:], memoryview, np.from_dlpack])
def test_held_arrays_of_stacked_infos_are_not_overwritten(keep: Any) -> None:
    reader = a_reader()
    held = []
    for i in range(5):
        stacked = stacked_by(reader, [i, i + 1.0, i + 2.0])
        assert_same(stacked, expected_of([i, i + 1.0, i + 2.0]))
        held.append([keep(stacked["episode"]["r"]), keep(stacked["pos"]), keep(stacked["_episode"].view(np.uint8))])
        del stacked
    for i, (returns, positions, has_ended) in enumerate(held):
        assert np.asarray(returns)[-1] == i + 2
        assert np.asarray(positions)[-1].tolist() == [i + 2, i + 2]
        assert np.asarray(has_ended)[-1] == 1


def test_changes_to_stacked_infos_do_not_affect_later_ones() -> None:
    reader = a_reader()
    for n in [3, 2, 2, 5, 3, 3, 3]:
        numbers = [float(i) for i in range(n)]
        stacked = stacked_by(reader, numbers)
        assert_same(stacked, expected_of(numbers))
        assert all(array.flags.writeable and array.flags.owndata for array in leaves(stacked))
        for array in leaves(stacked):
            array[...] = 1
            array.shape = (*array.shape, 1)
            array.flags.writeable = False
        stacked["episode"].clear()
        stacked["more"] = 1


def test_arrays_of_stacked_infos_with_a_weak_reference_end_when_dropped() -> None:
    reader = a_reader()
    ended = []
    for i in range(6):
        weakref.finalize(stacked_by(reader, [1.0, 2.0])["episode"]["r"], ended.append, i)
    stacked_by(reader, [1.0, 2.0])
    assert ended == list(range(6))


def new_field(path: tuple[str, ...] | str, value: Any) -> InfoField:
    field = field_of((path,) if isinstance(path, str) else path, value)
    assert field is not None
    return field


def columns_of(book: InfoColumns, **values: Any) -> list[str]:
    """Returns the keys that get a column. `a__b` stands for "b" in the dict "a"."""
    fields = [new_field(tuple(key.split("__")), value) for key, value in values.items()]
    return ["__".join(column.path) for column in book.assign(fields)]


def test_each_key_gets_one_column_while_there_is_room() -> None:
    book = InfoColumns(room=32)
    assert columns_of(book, a=1, b=2.0) == ["a", "b"]
    assert columns_of(book, a=1) == []
    (vector,) = book.assign([new_field("v", np.zeros(2, np.float32))])
    assert vector == InfoColumn(("v",), np.ndarray, np.dtype(np.float32), (2,), 16)
    assert columns_of(book, w=np.zeros(2)) == []  # only 8 bytes are left
    assert [c.offset for c in book.assign([new_field("x", True), new_field("y", 1)])] == [24]
    assert [c.path for c in book.columns] == [("a",), ("b",), ("v",), ("x",)]
    assert len(columns_of(InfoColumns(room=10_000), **{f"k{i}": i for i in range(100)})) == 64


def test_a_key_with_two_meanings_has_no_second_column() -> None:
    """A key is once a number and once a dict, or it is the mask of another key in Gymnasium's format."""
    assert columns_of(InfoColumns(room=10_000), a=1, a__b=1, b__a=1, b=1) == ["a", "b__a"]
    assert columns_of(InfoColumns(room=10_000), a=1, _a=True, _b=1, b__c=1, c=1) == ["a", "_b", "c"]
    assert columns_of(InfoColumns(room=10_000), a__b=1, a___b=1, a__c=1, _a__b=1) == ["a__b", "a__c"]
    with_dots = [new_field("a.b", 1), new_field(("a", "b"), 1), new_field(("a.b", "c"), 1)]
    assert len(InfoColumns(room=10_000).assign(with_dots)) == 2


NOT_NUMBERS = [None, "x", [1], {}, np.array(["a"]), np.datetime64(1, "s"), np.timedelta64(1, "s"), np.array([None])]


@pytest.mark.parametrize("value", [*NOT_NUMBERS, np.zeros(17)])
def test_values_that_get_no_column(value: Any) -> None:
    assert field_of(("a",), value) is None


def test_mask_bits_of_missing_columns_are_ignored() -> None:
    reader = _core.InfoReader()
    reader.add(("a",), int)
    reader.add(("b",), int)
    infos = Infos(np.array([255, 2], np.uint64), reader, [np.array([7, 8])], pickled({}), None)
    assert list(infos) == [{"a": 7}, {}]
    assert infos.stack()["_a"].tolist() == [True, False]
    assert list(Infos(np.array([255], np.uint64), reader, None, pickled({}), None)) == [{}]


@pytest.mark.parametrize(
    ("mask", "arrays"),
    [
        (np.zeros(2, np.int64), None),
        (np.zeros((2, 1), np.uint64), None),
        (np.zeros(4, np.uint64)[::2], None),
        (np.zeros(2, np.uint64), [np.zeros(3)]),
        (np.zeros(2, np.uint64), [np.zeros(())]),
        (np.zeros(2, np.uint64), [[0.0, 0.0]]),
        (np.zeros(2, np.uint64), [np.zeros((2, 4))[:, ::2]]),
    ],
)
def test_a_reader_checks_the_arrays_and_rows(mask: Any, arrays: Any) -> None:
    reader = _core.InfoReader()
    reader.add(("a",), float)
    for read in (lambda: reader.infos(mask, arrays), lambda: reader.stack(mask, arrays, None)):
        with pytest.raises(TypeError, match="expected"):
            read()
    two_rows = np.zeros(2, np.uint64)
    for read in (lambda: reader.info(two_rows, None, 2), lambda: reader.stack(two_rows, None, {2: None})):
        with pytest.raises(IndexError):
            read()


def test_a_reader_of_one_row_with_a_larger_stride() -> None:
    reader = _core.InfoReader()
    reader.add(("a",), np.ndarray)
    array = np.arange(8.0).reshape(4, 2)[::4]  # the array's stride spans four rows
    assert reader.infos(np.ones(1, np.uint64), [array])[0]["a"].tolist() == [0.0, 1.0]
    assert reader.stack(np.ones(1, np.uint64), [array], None)["a"].tolist() == [[0.0, 1.0]]
    assert reader.stack(np.ones(0, np.uint64), [array[:0]], None) == {}


def test_infos_are_a_sequence() -> None:
    infos = Infos(np.zeros(3, np.uint64), _core.InfoReader(), None, pickled({}), lambda row: None)
    assert (len(infos), list(infos), infos[1:], infos[-1]) == (3, [{}] * 3, [{}] * 2, {})
    assert infos.stack() == {}
    assert repr(infos) == "Infos([{}, {}, {}])"
    assert {} in infos
    with pytest.raises(IndexError):
        infos[3]


def test_a_fault_keeps_its_type_beside_numbers_that_envs_have_under_its_key() -> None:
    error = EnvError([Failure(1, 0, "step", None, "ValueError", "", "")])
    fault = Fault(1, 0, "exception", "step", EnvProgress(1, 0, 1, None, 0), error)
    for own in (False, 0.5):
        for rows in ({0: {"fault": own}, 1: {"fault": fault}}, {0: {"fault": fault}, 1: {"fault": own}}):
            raw = {row: (0, MadeRow([], info), None) for row, info in rows.items()}
            infos = Infos(np.zeros(2, np.uint64), a_reader(), None, pickled(raw), None)
            assert infos.stack()["fault"].tolist() == [info["fault"] for info in rows.values()]
