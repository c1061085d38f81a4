"""Pickles what envs return; errors name what cannot be pickled."""

from __future__ import annotations

import reprlib
from typing import Any

from remuda._wire.pickling import Parts, dump
from remuda._wire.texts import text_of


def dump_named(what: str, value: Any, shown: int | None = None) -> Parts:
    """Pickles `value` like `dump`. An error names what cannot be pickled. `shown`: how many of the values it shows."""
    try:
        return dump(value)
    except Exception as error:
        raise not_pickled(what, value if shown is None else value[:shown], error) from error


def not_pickled(what: str, value: Any, error: Exception) -> TypeError:
    """Returns an error that shows the whole value that cannot be pickled, not only the innermost type."""
    return TypeError(f"expected {what} that can be pickled, got {text_of(value, reprlib.repr)} ({text_of(error)})")
