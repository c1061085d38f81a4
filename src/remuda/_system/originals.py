"""Modules of Python without patches: copies that only remuda uses.

gevent and eventlet replace or remove functions of the modules that a program imports, and freezegun stops their clocks.
With the originals, a wait of the pool does not switch to another greenlet, and its time limits end.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING


def _copy_of(name: str) -> ModuleType:
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


if TYPE_CHECKING:
    import _thread as thread
    import select
    import subprocess
    import time
else:
    select, time, thread, subprocess = map(_copy_of, ("select", "time", "_thread", "subprocess"))

__all__ = ["select", "subprocess", "thread", "time"]
