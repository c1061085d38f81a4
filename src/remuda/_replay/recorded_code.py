"""Loads the pickled code of a record if the user permits it, because loading a pickle runs its code."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gymnasium.envs.registration import registry

from remuda._crash.record import CrashRecord, EpisodeStart
from remuda._factories import import_factory
from remuda._wire.pickling import load
from remuda.errors import RecordError


@dataclass(frozen=True)
class RecordedCode:
    """The code of a record.

    Attributes:
        record: The record.
        trust: Whether the record's pickles may be loaded.
        factory: The "module:function" that builds the env; None: the recorded factory.
    """

    record: CrashRecord
    trust: bool = False
    factory: str | None = None

    def load_factory(self) -> Callable[[], Any]:
        """Returns the function that builds the env. Raises RecordError if it cannot be loaded, or may not be."""
        record = self.record
        if self.trust:
            sys.path += [entry for entry in record.sys_path if entry not in sys.path]
            with suppress(OSError):
                os.chdir(record.cwd)
        if self.factory is not None:
            try:
                env_fn = import_factory(self.factory)
            except ValueError as error:
                raise RecordError(f"--factory {error}") from error
        elif "factory" in record.pickles:
            env_fn = self._load("factory", record.pickles["factory"])
        else:
            raise RecordError(
                f"{record.path} has no factory ({record.factory}): name one with --factory module:function"
            )
        if self.trust and record.spec_id is not None and record.spec_id not in registry and "spec" in record.pickles:
            registry[record.spec_id] = self._load("spec", record.pickles["spec"])  # the factory may look it up
        return env_fn

    def load_objects(self) -> dict[int, list[Any]]:
        """Returns the values of actions that have no column, by the index of the step. Raises RecordError."""
        if "actions" not in self.record.pickles:
            return {}
        rows = self._load("actions", self.record.pickles["actions"])
        return {index: load(parts) for index, parts in rows.items()}

    def load_options(self, start: EpisodeStart) -> Any:
        """Returns the options of a reset; None if it had none. Raises RecordError if they cannot be loaded."""
        if start.pickled_options is None:
            return start.options
        return self._load("reset options", start.pickled_options)

    def _load(self, name: str, pickled: bytes) -> Any:
        path, then, now = self.record.path, self.record.versions.get("python", ""), platform.python_version()
        if not self.trust:
            raise RecordError(f"{path} has {name} that are pickled code: replaying them needs --trust")
        if then.split(".")[:2] != now.split(".")[:2]:  # pickled bytecode of another Python version may crash
            raise RecordError(
                f"{path} was written by Python {then}, and this is {now}, which cannot load its pickles: "
                "use that one, or --factory module:function"
            )
        try:
            return load([pickled])
        except Exception as error:
            raise RecordError(
                f"the pickled {name} of {path} cannot be loaded here ({type(error).__name__}: {error}); "
                "is everything installed that was there then? Else name a factory with --factory module:function"
            ) from error
