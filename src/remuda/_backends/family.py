"""The keys by which all that was started from a worker is found again."""

from __future__ import annotations

import os
import secrets

from remuda import _core

_VARIABLE = _core.FAMILY_VARIABLE
# Of a fork server for its workers to write their own over.
PLACEHOLDER = "0" * 43


def new_key() -> str:
    """A key that no other worker has or will have; of one length, and it tells people whose it is."""
    return f"{os.getpid():010d}-{secrets.token_hex(16)}"


def with_key(environment: dict[str, str], key: str) -> dict[str, str]:
    """The environment of a worker: within another worker it belongs to both families."""
    outer = environment.get(_VARIABLE)
    return {**environment, _VARIABLE: key if outer is None else f"{outer}:{key}"}


def own_key() -> str:
    """This worker's."""
    return os.environ[_VARIABLE].rpartition(":")[2]


def show(environment: dict[str, str]) -> None:
    """In a worker that a fork server has forked, before anything else: also what it forks itself is to be found."""
    _core.show_family(environment[_VARIABLE])
