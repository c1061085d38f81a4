"""Lazy imports of a face: workers import their side of it without the learner."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from remuda._faces.frameworks import FRAMEWORKS


def lazily(
    package: str, names: Collection[str], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a face.

    Args:
        package: Its name.
        names: All that it has.
        modules: In which of its modules they are; what is not named here is in ``errors``.
    """
    framework = FRAMEWORKS[package]

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with framework.needed():
            return getattr(import_module(f"{package}.{modules.get(name, 'errors')}"), name)

    def listed() -> list[str]:
        """What would fail to be imported is left out, for ``help()`` and the like get all that is listed."""
        present = vars(sys.modules[package])
        return sorted({*present, *names} if framework.is_installed else present)

    return load, listed
