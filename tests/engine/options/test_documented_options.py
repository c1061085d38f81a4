"""The documentation of options equals the engine's options."""

from __future__ import annotations

import re

from remuda import PoolOptions
from remuda._engine.options.pool_options import OPTIONS


def test_the_docstring_lists_the_engines_options() -> None:
    listed = re.findall(r"^ {8}(\w+) \(.+?\): ", PoolOptions.__doc__ or "", re.MULTILINE)
    assert sorted(listed) == sorted(OPTIONS)


def test_the_pool_takes_every_option() -> None:
    """An option is a field of `OptionValues`, and a key of `FaceOptions` or `PoolOptions`."""
    assert OPTIONS.keys() == PoolOptions.__annotations__.keys()
