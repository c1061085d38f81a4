"""Checks which optional packages are installed."""

from __future__ import annotations

from importlib.util import find_spec


def is_installed(package: str) -> bool:
    """Returns whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # raised if sys.modules has None for the package, which prevents its import
        return False
