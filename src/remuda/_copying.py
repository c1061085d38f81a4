"""The error for pools and vector envs that a program copies or pickles."""

from __future__ import annotations


def not_copied(what: object) -> TypeError:
    """Returns the error for copying or pickling an object that has workers."""
    kind = type(what).__name__
    return TypeError(
        f"expected something that can be copied or pickled, got {kind}, whose workers belong to this program; make one "
        "from the same functions in the program that uses it"
    )
