"""Pickles values for the pool; an error names the value that cannot be pickled."""

from __future__ import annotations

import reprlib
from typing import Any

from remuda._wire.pickling import Parts, dump
from remuda._wire.texts import text_of


def dump_named(what: str, value: Any, shown: int | None = None) -> Parts:
    """As `dump`; an error says what it is that cannot be pickled. `shown`: it shows so many of the values only."""
    try:
        return dump(value)
    except Exception as error:
        raise not_pickled(what, value if shown is None else value[:shown], error) from error


def not_pickled(what: str, value: Any, error: Exception) -> TypeError:
    """An error that says what it is that cannot be pickled, instead of only the innermost type."""
    return TypeError(f"expected {what} that can be pickled, got {text_of(value, reprlib.repr)} ({text_of(error)})")
