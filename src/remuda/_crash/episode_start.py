"""The state from which an episode starts (seed, options, random generator), as the log of a worker keeps it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from remuda import _core
from remuda._wire import by_value

_ROOM = _core.BEGINNING_BYTES


def describe_beginning(env: Any, arguments: Mapping[str, Any]) -> tuple[_core.Entry, bytes]:
    """What kind of reset this is, and what is needed to begin there again: for `load_beginning`.

    That has `seed`; `options` where they are plain data, else `pickled_options`, or why they are missing as
    `options_lost`; and the env's `random` state, or `random_unknown`, why there is none. Nothing is raised: a record is
    no reason for a reset to fail. Nothing is slow: envs that reset in microseconds would notice.

    Args:
        env: It is about to be reset.
        arguments: Those of the reset.
    """
    seed, options = arguments.get("seed"), arguments.get("options")
    told: dict[str, Any] = {"seed": seed, **random_state(env)}
    if options is not None:
        told.update(_describe_options(options))
    data = pickle.dumps(told, 5)
    if len(data) > _ROOM and options is not None:
        told = {key: value for key, value in told.items() if key not in ("options", "pickled_options")}
        data = pickle.dumps({**told, "options_lost": "they are too long"}, 5)
    if seed is not None:
        return _core.Entry.SEEDED_RESET, data
    return (_core.Entry.RESET if options is None else _core.Entry.OPTIONS_RESET), data


def load_beginning(data: bytes) -> dict[str, Any]:
    """What `describe_beginning` has put down. Raises ValueError for anything else; nothing is run."""
    try:
        told = _PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # native code may have written over it, and garbage raises whatever it likes
        raise ValueError(f"expected how an episode began, got {data[:20]!r}... ({error})") from None
    if not isinstance(told, dict):
        raise ValueError(f"expected how an episode began, got {told!r}")
    return told


class _PlainUnpickler(pickle.Unpickler):
    """For plain data alone: it knows no classes and no functions."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def random_state(env: Any) -> dict[str, Any]:
    """`random`: the state of the env's generator as plain data; or `random_unknown`: why it has none."""
    try:
        generator = env.unwrapped.np_random
        if not isinstance(generator, np.random.Generator):
            return {"random_unknown": f"its np_random is no Generator, but {type(generator).__name__}"}
        state: Any = generator.bit_generator.state
        if state["bit_generator"] not in _BIT_GENERATORS:
            return {"random_unknown": f"its np_random draws from {state['bit_generator']}, which NumPy does not have"}
        # The usual kinds have nothing but numbers in it.
        return {"random": state if state["bit_generator"].startswith("PCG64") else _plain(state)}
    except Exception as error:  # an env's property may raise anything
        return {"random_unknown": f"its np_random cannot be read ({type(error).__name__}: {error})"}


def restore_random_state(env: Any, random: Mapping[str, Any]) -> None:
    """Puts an env's generator into a state that `random_state` has noted.

    In place where the kinds are the same: parts of the env may hold the generator too.

    Raises:
        ValueError: The state is of no generator that there is here, or makes no sense.
    """
    name = random.get("bit_generator")
    if name not in _BIT_GENERATORS:
        raise ValueError(f"expected the state of one of {', '.join(_BIT_GENERATORS)}, got {name!r}")
    bit_generator = env.unwrapped.np_random.bit_generator
    if type(bit_generator).__name__ != name:
        bit_generator = getattr(np.random, name)()
        env.unwrapped.np_random = np.random.Generator(bit_generator)
    try:
        bit_generator.state = _arrays(random)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"expected a state of {name}, got {random} ({error})") from None


_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        return {"dtype": state.dtype.name, "array": state.tolist()}
    return state.item() if isinstance(state, np.generic) else state


def _arrays(state: Any) -> Any:
    if not isinstance(state, Mapping):
        return state
    if set(state) == {"dtype", "array"}:
        return np.array(state["array"], state["dtype"])
    return {key: _arrays(value) for key, value in state.items()}


def _describe_options(options: Any) -> dict[str, Any]:
    try:
        if _is_plain(options):
            return {"options": options}
        return {"pickled_options": by_value.dumps(options)}
    except Exception as error:
        return {"options_lost": f"they cannot be pickled ({error})"}


def _is_plain(value: Any) -> bool:
    """Whether it comes back from JSON as it was."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
