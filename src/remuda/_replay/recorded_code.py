"""Loads the pickled code of a record if the user permits it, because loading a pickle runs its code."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gymnasium import Space
from gymnasium.envs.registration import registry

from remuda._crash.record import Beginning, Record
from remuda._wire.pickling import load
from remuda.errors import RecordError


@dataclass(frozen=True)
class Leave:
    """The user's permissions to load code for a replay.

    Attributes:
        trust: Whether the record's pickles may be loaded.
        factory: The "module:function" that builds the env; None: the recorded factory.
    """

    trust: bool = False
    factory: str | None = None

    @property
    def is_enough(self) -> bool:
        """Whether these permissions suffice to build an env."""
        return self.trust or self.factory is not None


class RecordedCode:
    """The code of a record. Only the parts that the user permits are loaded.

    Attributes:
        env_fn: Builds the env.
        observation_space: The space that the pool's rows were laid out for; None: the env's own.
        objects: The parts of actions without a column, by index of the step.
    """

    def __init__(self, record: Record, leave: Leave) -> None:
        """Raises RecordError if code cannot be loaded, or is needed and not permitted."""
        self._record, self._trust = record, leave.trust
        self.observation_space: Space[Any] | None = None
        self.objects: Mapping[int, list[Any]] = {}
        if leave.trust:
            self._restore_paths()
        self.env_fn = self._recorded_factory() if leave.factory is None else find_factory(leave.factory)
        if "actions" in record.pickles and not leave.trust:
            raise RecordError(f"{record.path} has actions that are pickled code: replaying them needs --trust")
        if not leave.trust:
            return
        self._register_spec()
        if "actions" in record.pickles:
            self.objects = {index: load(parts) for index, parts in self._load("actions").items()}
        if leave.factory is None:
            self.observation_space = self._load("observation_space")

    def options(self, beginning: Beginning) -> Any:
        """Returns the options of a reset. Raises RecordError if their pickle is not permitted or cannot be loaded."""
        if beginning.pickled_options is None:
            return beginning.options
        if not self._trust:
            raise RecordError(
                f"{self._record.path} has reset options that are pickled code: replaying them needs --trust"
            )
        return self._unpickle("options", beginning.pickled_options)

    def _restore_paths(self) -> None:
        """Restores the recorded program's `sys.path` and working directory."""
        sys.path += [entry for entry in self._record.sys_path if entry not in sys.path]
        with suppress(OSError):
            os.chdir(self._record.cwd)

    def _recorded_factory(self) -> Callable[[], Any]:
        record = self._record
        if not self._trust:
            raise RecordError(
                f"{record.path} has a factory that is pickled code: replaying it needs --trust or --factory"
            )
        if "factory" not in record.pickles:
            raise RecordError(
                f"{record.path} has no factory ({record.factory}): name one with --factory module:function"
            )
        env_fn = self._load("factory")
        if not callable(env_fn):
            raise RecordError(f"expected a function that builds an env, got {env_fn!r} in {record.path}")
        return env_fn  # type: ignore[no-any-return]

    def _register_spec(self) -> None:
        """Registers the env's id with Gymnasium, because the factory may need it."""
        spec_id = self._record.spec_id
        if spec_id is not None and spec_id not in registry and "spec" in self._record.pickles:
            registry[spec_id] = self._load("spec")

    def _load(self, name: str) -> Any:
        return self._unpickle(name, self._record.pickles[name])

    def _unpickle(self, name: str, pickled: bytes) -> Any:
        path, then, now = self._record.path, self._record.versions.get("python", ""), platform.python_version()
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


def find_factory(name: str) -> Callable[[], Any]:
    """Imports the function "module:function". The module may be in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, colon, function = name.partition(":")
    if not colon:
        raise RecordError(f"expected module:function as the factory, got {name!r}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise RecordError(f"expected a factory named {name}: {error}") from error
    if not callable(found):
        raise RecordError(f"expected a function that builds an env, got {found!r} for {name}")
    return found  # type: ignore[no-any-return]
