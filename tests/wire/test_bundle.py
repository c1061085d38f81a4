"""The pickled objects of a vector env's rows are packed into one blob and unpacked unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remuda._wire.pickling import bundle, dump, load, unbundle

ROWS: list[list[Any]] = [
    [None],
    [(5, None), None, (0, dump("text"))],
    [(16, dump([np.arange(3), np.zeros(2)])), (0, dump({})), (32, None)],
]


@pytest.mark.parametrize("rows", ROWS)
def test_rows_are_unpacked_unchanged(rows: list[Any]) -> None:
    arrived = [bytearray(part) for part in bundle(rows)]
    for row, given in zip(unbundle(arrived, len(rows)), rows, strict=True):
        if row is None or given is None or row[1] is None:
            assert row == given
        else:
            assert row[0] == given[0]
            np.testing.assert_equal(load(row[1]), load(given[1]))


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        ([b""], 1),
        ([b"noise"], 2),
        (bundle([None, None]), 3),
        (bundle([(0, [b"a", b"b"]), None])[:-1], 2),
        ([*bundle([None]), b"more"], 1),
    ],
)
def test_invalid_bundles_are_refused(parts: Any, rows: int) -> None:
    with pytest.raises(ValueError, match=r"expected the matter of|buffer"):
        unbundle(parts, rows)
