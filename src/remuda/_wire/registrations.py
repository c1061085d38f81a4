"""Carries the ids that are registered with Gymnasium from the pool's program to its workers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

import cloudpickle
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec, registry

from remuda._wire.pickling import load


def pickle_registrations() -> dict[str, bytes]:
    """The ids of this process, for workers that did not inherit them."""
    portable = {}
    for env_id, spec in registry.items():
        with suppress(Exception):
            portable[env_id] = cloudpickle.dumps(spec)
    return portable


def load_registrations(registrations: Mapping[str, bytes]) -> dict[str, EnvSpec]:
    """What they are, on the other side."""
    specs = {}
    for env_id, spec in registrations.items():
        with suppress(Exception):  # an id that cannot travel is missed only by the env that needs it, which says so
            specs[env_id] = load([spec])
    return specs


def says_nothing_new(filename: str, frame: FrameType | None) -> bool:
    """Whether a warning from that file, issued somewhere below `frame`, is of an id that is registered as it was.

    A module that registers its ids when it is imported does so in every worker, where they are known already.
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
    except Exception:  # of values that cannot be compared
        return False


def _names(value: Any) -> Any:
    """Of a function where it is from: one that travels by value is another object there."""
    return (value.__module__, value.__qualname__) if callable(value) and hasattr(value, "__qualname__") else value
