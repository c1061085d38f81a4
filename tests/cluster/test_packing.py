"""Steps and results as bytes: they come out as they went in, and belong to whoever unpacks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from remuda import StateError
from remuda._cluster.packing import pack_reply, pack_step, unpack_reply, unpack_step
from remuda._cluster.replies import FaultReport, Reply
from remuda._cluster.rows import Rows
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


@pytest.mark.parametrize("rows", [ROWS, RICH], ids=["without infos", "with infos"])
def test_a_reply_comes_out_as_it_went_in_and_may_be_written_to(rows: Rows) -> None:
    for turn in range(3):  # the head is made once
        rows.columns[0][0] = turn
        packed = pack_reply(Reply(rows))
        assert isinstance(packed, bytes)
        unpacked = unpack_reply(packed).rows
        assert unpacked is not None and plain(unpacked) == plain(rows)
        for array in (*unpacked.columns, *(unpacked.infos or ())):
            if array is not None:
                assert array.flags.writeable and array.flags.aligned
                array[:] = 0
        assert plain(unpack_reply(packed).rows) == plain(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("env_ids", [None, [0, 2]])
def test_a_step_comes_out_as_it_went_in(env_ids: Any) -> None:
    actions = [np.array([3, 4]), np.ones((2, 3), np.float32)[:, :2]]
    arrays, ids = unpack_step(pack_step(actions, env_ids))
    assert [array.tolist() for array in arrays] == [array.tolist() for array in actions] and ids == env_ids


def test_what_is_more_than_arrays_or_large_is_left_to_ray() -> None:
    large = replace(ROWS, columns=[*ROWS.columns, np.zeros((3, 1 << 16), np.uint8)])
    for reply in (
        Reply(None),
        Reply(large),
        Reply(replace(ROWS, extras={0: (0, None, None)})),
        Reply(ROWS, (StateError("not now"),)),
        Reply(ROWS, fault_reports=(FaultReport((), "it is restarted"),)),
    ):
        assert pack_reply(reply) is reply and unpack_reply(reply) is reply
