"""docs/pool.md has the options as the engine has them."""

from __future__ import annotations

from option_table import DOCUMENT, with_table


def test_the_document_has_the_engines_options() -> None:
    text = DOCUMENT.read_text()
    assert text == with_table(text), "write it with: python tests/option_table.py"
