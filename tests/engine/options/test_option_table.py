"""The option table in docs/pool.md equals the engine's options."""

from __future__ import annotations

from option_table import DOCUMENT, with_table

from remuda import PoolOptions
from remuda._engine.options.pool_options import OPTIONS


def test_the_document_lists_the_engines_options() -> None:
    text = DOCUMENT.read_text()
    assert text == with_table(text), "write it with: python tests/option_table.py"


def test_the_pool_takes_every_option() -> None:
    """An option is a field of `OptionValues`, and a key of `FaceOptions` or `PoolOptions`."""
    assert OPTIONS.keys() == PoolOptions.__annotations__.keys()
