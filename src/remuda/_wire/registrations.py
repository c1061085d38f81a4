"""Carries the env ids that are registered with Gymnasium from the pool's process to its workers."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from copy import copy
from types import FrameType, FunctionType
from typing import Any, TypeAlias

from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec, registry

from remuda._wire import by_value

Registrations: TypeAlias = tuple[bytes, dict[str, bytes]]
"""One pickle of the specs that any process can load, which are most; a pickle of each other spec, by its id."""

_PLAIN = {bool, int, float, str, type(None)}


class EntryPoint:
    """A function of a spec that is unpickled when it is first used, because that may import a large library."""

    def __init__(self, function: Any) -> None:
        self._pickled = by_value.dumps(function)
        self.names = _names(function) if hasattr(function, "__qualname__") else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return pickle.loads(self._pickled)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the function: Gymnasium reads the `metadata` of a class."""
        if name.startswith("__") or "_pickled" not in self.__dict__:  # while this object is copied or unpickled
            raise AttributeError(name)
        return getattr(pickle.loads(self._pickled), name)


def pickle_registrations() -> Registrations:
    """Pickles the env ids that are registered in this process, for workers that did not inherit them."""
    plain, others = dict[str, EnvSpec](), dict[str, bytes]()
    for env_id, spec in registry.items():
        with suppress(Exception):
            if type(spec) is EnvSpec and _is_plain(vars(carried := _with_entry_points(spec))):
                plain[env_id] = carried
            else:
                others[env_id] = by_value.dumps(spec)
    return pickle.dumps(plain), others


def _with_entry_points(spec: EnvSpec) -> EnvSpec:
    """Returns a spec whose functions can be unpickled later."""
    names = ("entry_point", "vector_entry_point")
    functions = {name: value for name in names if callable(value := getattr(spec, name)) and not _is_plain(value)}
    if not functions:
        return spec
    carried = copy(spec)
    for name, function in functions.items():
        setattr(carried, name, EntryPoint(function))
    return carried


def load_registrations(registrations: Registrations) -> dict[str, EnvSpec]:
    """Returns the specs of the pickled env ids, by id, in a worker."""
    together, others = registrations
    specs: dict[str, EnvSpec] = pickle.loads(together)
    for env_id, spec in others.items():
        with suppress(Exception):  # if an id cannot be loaded, only an env that needs the id fails
            specs[env_id] = pickle.loads(spec)
    return specs


def _is_plain(value: Any) -> bool:
    """Whether a value can be loaded in any process that can import Gymnasium."""
    kind = type(value)
    if kind in _PLAIN or kind is EntryPoint:
        return True
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if kind is tuple or kind is list:
        return all(map(_is_plain, value))
    if kind is not FunctionType or str(value.__module__).partition(".")[0] != "gymnasium":
        return False
    return getattr(sys.modules.get(value.__module__), value.__qualname__, None) is value


def says_nothing_new(filename: str, frame: FrameType | None) -> bool:
    """Returns whether a warning is only about an env id that was registered again with an equal spec.

    A module that registers its ids on import does so in every worker, which already has them.
    """
    if filename != registration.__file__:
        return False
    while frame is not None and frame.f_code is not registration.register.__code__:
        frame = frame.f_back
    spec = None if frame is None else frame.f_locals.get("new_spec")
    return isinstance(spec, EnvSpec) and _are_equal(spec, registry.get(spec.id))


def _are_equal(new: EnvSpec, known: EnvSpec | None) -> bool:
    if known is None:
        return False
    try:
        return all(_names(value) == _names(getattr(known, name)) for name, value in vars(new).items())
    except Exception:  # some values cannot be compared
        return False


def _names(value: Any) -> Any:
    """Returns the value to compare: for a function, module and name, because unpickling may make another function."""
    if isinstance(value, EntryPoint):
        return value.names
    return (value.__module__, value.__qualname__) if callable(value) and hasattr(value, "__qualname__") else value
