"""Infos: from columns and pickles back to dicts, and stacked as Gymnasium has them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_envs import assert_same

from remuda import Infos
from remuda._engine.pool.infos import Extras, InfoColumns
from remuda._wire.layout import InfoColumn

NUMBERS: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.lists(st.integers(0, 9), min_size=2, max_size=2).map(np.array),
    st.floats().map(np.array),
]
THINGS: list[st.SearchStrategy[Any]] = [st.text(max_size=3), st.none(), st.just([1, 2]), st.just((None,))]
KEYS = st.sampled_from(["a", "b", "_a", "c", "final_obs", "é", 7])


@st.composite
def info_batches(draw: st.DrawFn, depth: int = 1) -> list[dict[Any, Any]]:
    """Infos of some envs: of one kind for each key, as Gymnasium's arrays need it, in an order of its own for each."""
    n = draw(st.integers(1, 5))
    infos: list[dict[Any, Any]] = [{} for _ in range(n)]
    for key in draw(st.lists(KEYS, unique=True, max_size=5)):
        if depth and key != "final_obs" and draw(st.integers(0, 4)) == 0:
            values = draw(info_batches(depth - 1))
        else:
            kind = draw(st.sampled_from(NUMBERS if draw(st.booleans()) else THINGS))
            values = draw(st.lists(kind, min_size=n, max_size=n))
        for info, value in zip(infos, values, strict=False):
            if draw(st.booleans()):
                info[key] = value
    return infos


def theirs(infos: list[dict[Any, Any]]) -> dict[Any, Any]:
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = len(infos)
    stacked: dict[Any, Any] = {}
    for i, info in enumerate(infos):
        stacked = envs._add_info(stacked, info, i)
    return stacked


@given(info_batches())
@settings(max_examples=300, deadline=None)
def test_stacked_infos_equal_gymnasiums(infos: list[dict[Any, Any]]) -> None:
    try:
        expected = theirs(infos)
    except Exception:
        return
    extras: Any = {i: (0, [pickle.dumps(([], info, None, None))]) for i, info in enumerate(infos)}
    ours = Infos(np.zeros(len(infos), np.uint64), [], [], Extras(extras), lambda row: None)
    assert_same(ours.stack(), expected)
    assert_same(list(ours), infos)


@given(
    st.lists(
        st.sampled_from(NUMBERS).flatmap(lambda kind: st.lists(kind, min_size=4, max_size=4)), min_size=1, max_size=6
    ),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_infos_in_columns_equal_gymnasiums(table: list[list[Any]], data: st.DataObject) -> None:
    """`table` has the values of each key for 4 envs."""
    book = InfoColumns(room=10_000)
    infos: list[dict[str, Any]] = [{} for _ in range(4)]
    mask = np.zeros(4, np.uint64)
    arrays = []
    for k, values in enumerate(table):
        key = f"key {k}"
        (column,) = book.assign({key: values[0]}, [key])
        arrays.append(np.zeros((4, *column.shape), column.dtype))
        for i, value in enumerate(values):
            if data.draw(st.booleans()):
                arrays[-1][i] = value
                infos[i][key] = value
                mask[i] |= np.uint64(1 << k)
    ours = Infos(mask, book.columns, arrays, Extras(None), lambda row: None)
    assert_same(ours.stack(), theirs(infos))
    assert_same(list(ours), infos)


def test_columns_are_given_once_while_there_is_room() -> None:
    book = InfoColumns(room=32)
    assert [c.key for c in book.assign({"a": 1, "b": 2.0, "s": "x"}, ["a", "b", "s"])] == ["a", "b"]
    assert book.assign({"a": 1}, ["a"]) == []
    (vector,) = book.assign({"v": np.zeros(2, np.float32)}, ["v"])
    assert vector == InfoColumn("v", np.ndarray, np.dtype(np.float32), (2,), 16)
    assert book.assign({"w": np.zeros(2)}, ["w"]) == []  # 8 bytes are left
    assert [c.offset for c in book.assign({"x": True, "y": 1}, ["x", "y"])] == [24]
    assert [c.key for c in book.columns] == ["a", "b", "v", "x"]


def test_no_more_columns_than_bits() -> None:
    book = InfoColumns(room=10_000)
    info = {f"k{i}": i for i in range(100)}
    assert len(book.assign(info, list(info))) == 64


@pytest.mark.parametrize(
    "value", [None, "x", [1], {}, np.zeros(17), np.array(["a"]), np.datetime64(1, "s"), np.array([None])]
)
def test_what_gets_no_column(value: Any) -> None:
    assert InfoColumns(room=10_000).assign({"a": value}, ["a"]) == []


def test_infos_are_a_sequence() -> None:
    infos = Infos(np.zeros(3, np.uint64), [], [], Extras(None), lambda row: None)
    assert (len(infos), list(infos), infos[1:], infos[-1]) == (3, [{}] * 3, [{}] * 2, {})
    assert infos.stack() == {}
    assert repr(infos) == "Infos([{}, {}, {}])"
    assert {} in infos
    with pytest.raises(IndexError):
        infos[3]
