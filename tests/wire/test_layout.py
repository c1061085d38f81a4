"""The places of columns in the shared memory."""

from __future__ import annotations

import pickle

import numpy as np
from gymnasium import spaces

from remuda._wire.codec import ColumnSpec
from remuda._wire.layout import Layout


def test_parts_of_the_memory_do_not_overlap() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (3, 5), np.uint8), b=spaces.Discrete(2), c=spaces.Box(0, 1, (0,)))
    layout = Layout((2, 2, 1), 3, "same_step", space, space)
    plan = layout.plan
    sizes = [c.nbytes for c in layout.observation.columns]
    columns = [8, 1, 1, 8, layout.info_bytes, *sizes, *sizes]
    starts = [*plan.actions, *plan.columns]
    lengths = [size * 5 for size in sizes] + [size * plan.rows for size in columns]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert all(start % 64 == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= plan.bytes
    copy = pickle.loads(pickle.dumps(layout))
    assert (copy.plan.bytes, copy.plan.columns) == (plan.bytes, plan.columns)


def test_a_row_has_the_bytes_of_all_its_columns() -> None:
    space = spaces.Box(0, 1, (3, 5), np.uint8)
    for mode in ("next_step", "same_step"):
        plain = Layout((2,), 3, mode, space, space)
        wide = Layout(
            (2,), 3, mode, space, space, computed=(ColumnSpec("extras['map']", np.dtype(np.float64), (1000,)),)
        )
        assert wide.row_bytes == plain.row_bytes + 8000
        assert wide.row_bytes == sum([*wide.plan_arguments()["column_bytes"], *wide.plan_arguments()["action_bytes"]])
