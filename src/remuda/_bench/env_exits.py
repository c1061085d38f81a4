"""Prevents an env that is stepped in this process from ending the process silently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class EnvExitError(Exception):
    """An env has called `os._exit` or `sys.exit`."""


@contextmanager
def exits_raise() -> Iterator[None]:
    """Makes `os._exit` and `sys.exit` raise EnvExitError in this process. Forked children still end.

    If a signal ends the process, the shell reports it.
    """
    ours, leave = os.getpid(), os._exit

    def refuse(status: int) -> NoReturn:
        if os.getpid() != ours:
            leave(status)
        raise EnvExitError(f"the env called os._exit({status})")

    os._exit = refuse
    try:
        yield
    except SystemExit as error:
        raise EnvExitError(f"the env called sys.exit({error.code!r})") from error
    finally:
        os._exit = leave
