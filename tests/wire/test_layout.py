"""The sizes of columns in the shared memory."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from remuda._wire.codec import ColumnSpec
from remuda._wire.layout import Layout


def test_a_row_has_the_bytes_of_all_its_columns() -> None:
    space = spaces.Box(0, 1, (3, 5), np.uint8)
    for mode in ("next_step", "same_step"):
        plain = Layout((2,), 3, mode, space, space)
        wide = Layout(
            (2,), 3, mode, space, space, computed=(ColumnSpec("extras['map']", np.dtype(np.float64), (1000,)),)
        )
        assert wide.row_bytes == plain.row_bytes + 8000
        assert wide.row_bytes == sum([*wide.plan_arguments()["column_bytes"], *wide.plan_arguments()["action_bytes"]])
