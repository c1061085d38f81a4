"""Settings of crash records: the place of the files, and the factories that they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda._engine.options.checks import int_from
from remuda._keywords import names_keywords
from remuda._system.directories import make_writable
from remuda._wire import by_value


@names_keywords(option="record")
@dataclass(frozen=True)
class Recording:
    """The settings of crash records, which replay the failure of an env.

    Attributes:
        directory: For the crash records, one file for each fault. It is made if need be.
        bytes_per_env: Shared memory for the latest actions of each env. A longer episode cannot be replayed.
        max_files: So many are written by one pool; of further faults there is none. The first ones are kept: what an
            error has named stays where it is.

    Raises:
        ValueError: A number below 1.
    """

    directory: str | os.PathLike[str]
    bytes_per_env: int = 1 << 18
    max_files: int = 100

    def __post_init__(self) -> None:
        for name in ("bytes_per_env", "max_files"):
            int_from(1)(name, getattr(self, name))


def recording_for(record: Any) -> Recording | None:
    """Returns the meaning of the pool's option `record`; its directory is there afterwards.

    Raises TypeError if it is no directory, and OSError if the directory cannot be made or not be written to.
    """
    if record is None:
        return None
    if not isinstance(record, (str, os.PathLike, Recording)):
        raise TypeError(f"expected record to be a directory, a Recording, or None, got {record!r}")
    recording = record if isinstance(record, Recording) else Recording(record)
    return replace(recording, directory=make_writable(recording.directory, "record"))


class Factories:
    """The pool's factories in records. They are pickled at once, since they may refer to their pool."""

    def __init__(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        known = {id(env_fn): env_fn for env_fn in env_fns}  # most envs of a pool have the same factory
        described = {key: _describe_factory(env_fn) for key, env_fn in known.items()}
        self._factories = [described[id(env_fn)] for env_fn in env_fns]

    def replace(self, env_id: int, env_fn: Callable[[], Any]) -> None:
        """Puts another factory in the place of an env's."""
        self._factories[env_id] = _describe_factory(env_fn)

    def __getitem__(self, env_id: int) -> tuple[str, bytes | None]:
        """Returns the factory's name, and its pickle; None if it cannot be pickled."""
        return self._factories[env_id]


def _describe_factory(env_fn: Callable[[], Any]) -> tuple[str, bytes | None]:
    name = getattr(env_fn, "__qualname__", None)
    text = repr(env_fn) if name is None else f"{getattr(env_fn, '__module__', '?')}.{name}"
    try:
        return text, by_value.dumps(env_fn)
    except Exception as error:  # with start_method="fork", threads, or in the caller itself it need not be possible
        return f"{text}, which cannot be pickled ({type(error).__name__}: {error})", None
