"""Sends factories of envs to a worker process, with the env ids that the program has registered with Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gymnasium.envs.registration import EnvSpec, registry

from remuda._wire import by_value
from remuda._wire.culprit import culprit
from remuda._wire.pickling import Buffers, load
from remuda._wire.registrations import load_registrations, pickle_registrations
from remuda.errors import InvalidEnvError

EnvFn: TypeAlias = Callable[[], Any]
Carried: TypeAlias = Buffers
"""Gymnasium ids, and a factory that may need them, both pickled."""


class BuildError(Exception):
    """A factory failed. The exception holds the failure for the pool."""

    def __init__(self, failure: Buffers) -> None:
        super().__init__("an env could not be built")
        self.failure = failure


def pickled_for_worker(value: Any, what: str, remedy: str = "") -> bytes:
    """Pickles a value of the caller. Raises InvalidEnvError, which names the part that cannot be pickled.

    `what`, `remedy`: parts of the error's text: the value and its use, and advice.
    """
    try:
        pickled: bytes = by_value.dumps(value)
    except Exception as error:
        raise InvalidEnvError(
            f"expected {what}, got {type(error).__name__}: {error} ({culprit(value)}){remedy}"
        ) from error
    return pickled


def carry(env_fn: EnvFn, slot: int) -> Carried:
    """Pickles a slot's new factory, to send it to the slot's running worker. Raises InvalidEnvError if it cannot."""
    what = f"the new factory of env {slot} to be one that can be pickled, for a worker process calls it"
    pickled = pickled_for_worker(env_fn, what, "; build inside the function what it cannot carry")
    return [by_value.dumps(pickle_registrations()), pickled]


def unpack(carried: Carried) -> EnvFn:
    """Unpickles a factory in the worker."""
    ids, pickled = carried
    specs = load_registrations(load([ids]))
    registry.update(specs)  # before `load` below, which may import modules that look up ids
    return with_ids(specs, load([pickled]))


def with_ids(ids: Mapping[str, EnvSpec], env_fn: EnvFn) -> EnvFn:
    """Returns a factory that registers `ids` again before it builds, because modules may have replaced them."""

    def build() -> Any:
        registry.update(ids)
        return env_fn()

    return build
