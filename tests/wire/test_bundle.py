"""Invalid messages with the pickled objects of a vector env's rows are refused."""

from __future__ import annotations

from typing import Any

import pytest

from remuda._wire.pickling import bundle, unbundle


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
