"""`str` and `repr` of objects that somebody else has made: either may raise anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def text_of(value: Any, make: Callable[[Any], str] = str, otherwise: str | None = None) -> str:
    """What `make` makes of it, as a `str` and no subclass of that; `otherwise`, or its class, where that raises.

    Raises KeyboardInterrupt: it is the user's.
    """
    try:
        return str.__str__(make(value))
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit too: it is not for the text of an object to end us
        return f"<{type(value).__qualname__}>" if otherwise is None else otherwise
