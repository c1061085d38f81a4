"""Names that are imported when first asked for: workers import their side of a face, and no learner with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, names: Collection[str], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a face.

    Args:
        package: Its name.
        names: All that it has.
        modules: In which of its modules they are; what is not named here is in ``errors``.
    """

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules.get(name, 'errors')}"), name)

    return load
