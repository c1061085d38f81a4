"""Modules of Python without patches: copies that only remuda uses.

gevent and eventlet replace or remove functions of the modules that a program imports, and freezegun stops their clocks.
With the originals, a wait of the pool does not switch to another greenlet, and its time limits end.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING


def copy_of(name: str) -> ModuleType:
    """Returns a copy of a module, without the patches of its functions and classes."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


if TYPE_CHECKING:
    import _thread as thread
    import select
    import time
else:
    select, time, thread = map(copy_of, ("select", "time", "_thread"))

__all__ = ["copy_of", "select", "thread", "time"]
