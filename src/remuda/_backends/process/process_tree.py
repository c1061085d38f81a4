"""Finds and kills a worker's whole process tree, by a key that all its descendants have in their environment."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from functools import partial

from remuda import _core
from remuda._relay.log import logger
from remuda._system.finalizers import hand_over

_VARIABLE = _core.FAMILY_VARIABLE

_owner_keys: dict[int, str] = {}  # by process id: a forked child has a key of its own


def owner_key() -> str:
    """Returns the key that all workers of this process and their descendants have in their environment."""
    return _owner_keys.setdefault(os.getpid(), new_key())


def new_key() -> str:
    """Returns a unique key. All keys have the same length and begin with the id of this process."""
    return f"{os.getpid():010d}-{secrets.token_hex(16)}"


def with_key(environment: dict[str, str], key: str) -> dict[str, str]:
    """Returns `environment` with the owner's key and the worker's `key`. If the owner is a worker, its keys stay."""
    outer = environment.get(_VARIABLE)
    keys = f"{owner_key()}:{key}"
    return {**environment, _VARIABLE: keys if outer is None else f"{outer}:{keys}"}


def show(environment: Mapping[str, str]) -> None:
    """Makes /proc show the keys in `environment` for this process. A forked worker does so before it has children."""
    _core.show_keys(environment[_VARIABLE])


def take_on(environment: Mapping[str, str]) -> None:
    """Gives this process exactly these environment variables, and makes /proc show the keys in them.

    Changes only variables that differ: the time to change one grows with their number, which may be thousands.
    """
    show(environment)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if os.environ.get(name) != value})


def can_show_for_a_moment(environment: Mapping[str, str]) -> bool:
    """Whether this process can show a worker's keys and then its own again: both texts need the same length."""
    return len(environment[_VARIABLE]) == len(os.environ.get(_VARIABLE, ""))


def kill_process_trees(keys: list[str], patience: float) -> list[int]:
    """Kills all processes with one of these keys. Returns the pids of survivors after `patience` seconds."""
    hunt = _core.kill_process_tree(keys, round(patience * 1000))
    if hunt.problem:
        text = (
            "expected to find in /proc what the workers that ended have started, got %r: whatever has left their "
            "process groups may still run"
        )
        hand_over(partial(logger.warning, text, os.strerror(hunt.problem)))  # log handlers may wait for this thread
    return hunt.survivors
