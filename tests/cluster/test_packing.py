"""Packing steps and results into bytes and unpacking them returns equal values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from remuda import StateError
from remuda._cluster.messages import FaultReport, Reply, Rows
from remuda._cluster.packing import pack_reply, pack_step, unpack_reply, unpack_step
from remuda._wire.info_columns import InfoField

ROWS = Rows(
    np.array([4, 5, 6]),
    [
        np.array([1.5, 2.5, 3.5]),
        np.array([True, False, True]),
        np.array([False, False, True]),
        None,
        np.arange(21, dtype=np.uint8).reshape(3, 7),
        np.zeros((3, 0), np.float32),
        np.arange(12, dtype=np.float64).reshape(3, 4)[:, ::2],
    ],
)
MASK = np.array([1, 3, 2], np.uint64)
FIELDS = (InfoField(("a",), float, np.dtype(np.float64), ()), InfoField(("b", "c"), int, np.dtype(np.int64), (2,)))
RICH = replace(
    ROWS,
    columns=[*ROWS.columns[:3], MASK, *ROWS.columns[4:]],
    finals=[np.arange(21, dtype=np.uint8).reshape(3, 7), np.zeros((3, 0), np.float32)],
    infos=[np.array([1.0, 2.0, 3.0]), np.arange(6).reshape(3, 2)],
    fields=FIELDS,
)


def plain(rows: Rows) -> Any:
    def of(arrays: Any) -> Any:
        return arrays and [None if a is None else (a.dtype, a.shape, a.tolist()) for a in arrays]

    return of([rows.env_ids]), of(rows.columns), of(rows.finals), of(rows.infos), rows.fields, rows.extras


PROGRESS = np.arange(24, dtype=np.uint64).reshape(3, 8)


@pytest.mark.parametrize("rows", [ROWS, RICH], ids=["without infos", "with infos"])
def test_a_packed_reply_is_unpacked_unchanged(rows: Rows) -> None:
    for turn in range(3):  # the first packing also makes the header
        rows.columns[0][0] = turn
        packed = pack_reply(Reply([rows], PROGRESS, pending=2))
        assert isinstance(packed, bytes)
        reply = unpack_reply(packed)
        assert [plain(one) for one in reply.rows] == [plain(rows)]
        assert reply.progress.tolist() == PROGRESS.tolist() and reply.pending == 2
        assert all(array.flags.aligned for array in reply.rows[0].columns if array is not None)


@pytest.mark.parametrize("env_ids", [None, [0, 2]])
def test_a_packed_step_is_unpacked_unchanged(env_ids: Any) -> None:
    actions = [np.array([3, 4]), np.ones((2, 3), np.float32)[:, :2]]
    number, arrays, ids = unpack_step(pack_step(7, actions, env_ids))
    assert [array.tolist() for array in arrays] == [array.tolist() for array in actions]
    assert (number, ids) == (7, env_ids)


def test_large_replies_and_other_objects_are_not_packed() -> None:
    large = replace(ROWS, columns=[*ROWS.columns, np.zeros((3, 1 << 16), np.uint8)])
    for reply in (
        Reply([], PROGRESS),
        Reply([ROWS, ROWS], PROGRESS),
        Reply([large], PROGRESS),
        Reply([replace(ROWS, extras={0: (0, None, None)})], PROGRESS),
        Reply([ROWS], PROGRESS, failures=[(1, [b"what it raised"])]),
        Reply([ROWS], PROGRESS, lost={1: StateError("not now")}),
        Reply([ROWS], PROGRESS, answers={5: (0, [b"yes"])}),
        Reply([ROWS], PROGRESS, fault_reports=(FaultReport((), "it is restarted"),)),
    ):
        assert pack_reply(reply) is reply and unpack_reply(reply) is reply
