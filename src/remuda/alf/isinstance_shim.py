"""``isinstance`` with ALF's own classes, which its trainer asks for."""

from __future__ import annotations

from importlib import import_module


def stand_in(ours: type, module: str) -> None:
    """Let instances of a class pass for those of ALF's class of the same name, where that can be imported.

    It needs a compiled part of ALF, which is not there in every installation, and which nothing here uses.
    """
    try:
        theirs = getattr(import_module(module), ours.__name__)
    except ImportError:
        return
    if theirs is not ours:
        theirs.register(ours)
