"""Settings of crash records, and the env factories that crash records name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gymnasium.envs.registration import registry

from remuda._engine.options.checks import int_from
from remuda._keywords import names_keywords
from remuda._system.directories import make_writable
from remuda._wire import by_value
from remuda._worker.env_report import EnvReport

Factories: TypeAlias = "list[tuple[str, bytes | None]]"
"""The name and the pickle of each env's factory, for crash records; None if the factory cannot be pickled."""


@names_keywords(option="crash_dir")
@dataclass(frozen=True)
class CrashDir:
    """The settings of crash records, from which failures of envs can be replayed.

    Attributes:
        directory: The directory of the crash records, one file for each fault. It is made if it does not exist.
        bytes_per_env: Bytes of shared memory for the latest actions of each env. A longer episode cannot be replayed.
        max_files: The largest number of records that one pool writes. Later faults have no record, so that the files
            that earlier errors have named stay in place.

    Raises:
        TypeError: `directory` is no path.
        ValueError: A number is below 1.
    """

    directory: str | os.PathLike[str]
    bytes_per_env: int = 1 << 18
    max_files: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.directory, (str, os.PathLike)):
            raise TypeError(f"expected directory of CrashDir to be a path, got {self.directory!r}")
        for name in ("bytes_per_env", "max_files"):
            int_from(1)(name, getattr(self, name))


def crash_dir_for(given: Any) -> CrashDir | None:
    """Returns the settings for the option `crash_dir`, and makes the directory that they name.

    Raises TypeError if it names no directory, and OSError if the directory cannot be made or written to.
    """
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike, CrashDir)):
        raise TypeError(f"expected crash_dir to be a directory, a CrashDir, or None, got {given!r}")
    crash_dir = given if isinstance(given, CrashDir) else CrashDir(given)
    return replace(crash_dir, directory=make_writable(crash_dir.directory, "crash_dir"))


def described(env_fns: Sequence[Callable[[], Any]]) -> Factories:
    """Returns the `Factories` of envs. It contains no factory, because factories may keep a pool alive."""
    known = {id(env_fn): env_fn for env_fn in env_fns}  # pickles each factory once: most envs share one
    found = {key: _describe_factory(env_fn) for key, env_fn in known.items()}
    return [found[id(env_fn)] for env_fn in env_fns]


def pickled_specs(reports: Iterable[EnvReport]) -> dict[str, bytes]:
    """Returns what the program has registered with Gymnasium for the ids of envs, pickled: a replay may need it."""
    pickled = {}
    for name in {report.spec.id for report in reports if report.spec is not None} & registry.keys():
        with suppress(Exception):  # a record without it is better than none
            pickled[name] = by_value.dumps(registry[name])
    return pickled


def _describe_factory(env_fn: Callable[[], Any]) -> tuple[str, bytes | None]:
    name = getattr(env_fn, "__qualname__", None)
    text = repr(env_fn) if name is None else f"{getattr(env_fn, '__module__', '?')}.{name}"
    try:
        return text, by_value.dumps(env_fn)
    except Exception as error:  # not raised: some pools, as with start_method="fork", need no pickle
        return f"{text}, which cannot be pickled ({type(error).__name__}: {error})", None
