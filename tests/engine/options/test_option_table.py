"""The option table in docs/pool.md equals the engine's options."""

from __future__ import annotations

from option_table import DOCUMENT, with_table


def test_the_document_lists_the_engines_options() -> None:
    text = DOCUMENT.read_text()
    assert text == with_table(text), "write it with: python tests/option_table.py"
