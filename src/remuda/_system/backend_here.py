"""The backend of a pool whose program leaves the choice to the system: `backend=None`."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Literal


def backend_here(*, warns: bool = True) -> Literal["process", "thread"]:
    """Returns "process" on Linux, and "thread" elsewhere. `warns`: whether to log the consequence, once a program."""
    if sys.platform == "linux":
        return "process"
    if warns:
        _warn()
    return "thread"


@functools.cache
def _warn() -> None:
    logging.getLogger("remuda").warning(
        "remuda: expected Linux, which worker processes need, got %s: envs run in threads of this process instead. "
        "They share the GIL, so that steps written in Python do not run in parallel, and an env that crashes its "
        "process crashes the program. Pass backend='thread' to silence this",
        sys.platform,
    )
