"""The documentation of options names every option."""

from __future__ import annotations

import re

from remuda import PoolOptions


def test_the_docstring_lists_the_options() -> None:
    listed = re.findall(r"^ {8}(\w+) \(.+?\): ", PoolOptions.__doc__ or "", re.MULTILINE)
    assert sorted(listed) == sorted(PoolOptions.__annotations__)
