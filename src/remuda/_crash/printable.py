"""Escapes what could steer a terminal, in text that comes out of a file."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without anything that a terminal would obey or hide: such characters as their escapes.

    Lines and tabs stay.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
