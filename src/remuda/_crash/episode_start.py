"""The state from which an episode starts (seed, options, random generator), as bytes in a worker's log."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from remuda import _core
from remuda._wire import by_value
from remuda._wire.pickling import load

OPTIONS_CHANGE = "options_change"  # the key of the number of the latest change of the env's lasting options

_ROOM = _core.BEGINNING_BYTES


def describe_start(env: Any, arguments: Mapping[str, Any], options_change: int = 0) -> tuple[_core.Entry, bytes]:
    """Returns the kind of a reset, and a pickle of the data with which a replay repeats the reset.

    The data has `seed`; `options` if they are plain data, otherwise `pickled_options`, or the reason why they are
    missing as `options_lost`; the env's `random` state, or the reason why it is missing as `random_unknown`; and
    `OPTIONS_CHANGE`, unless it is 0. Nothing is raised, because a record must not make a reset fail. It is fast,
    because some envs reset in microseconds.

    Args:
        env: The env, before the reset.
        arguments: The arguments of the reset.
        options_change: The number of the latest change of the env's lasting options.
    """
    seed, options = arguments.get("seed"), arguments.get("options")
    noted: dict[str, Any] = {"seed": seed, **random_state(env)}
    if options_change:
        noted[OPTIONS_CHANGE] = options_change
    if options is not None:
        noted.update(_describe_options(options))
    data = pickle.dumps(noted, 5)
    if len(data) > _ROOM and options is not None:
        noted = {key: value for key, value in noted.items() if key not in ("options", "pickled_options")}
        data = pickle.dumps({**noted, "options_lost": "they are too long"}, 5)
    if seed is not None:
        return _core.Entry.SEEDED_RESET, data
    return (_core.Entry.RESET if options is None else _core.Entry.OPTIONS_RESET), data


def load_start(data: bytes) -> dict[str, Any]:
    """Reads the pickle from `describe_start`, without running code in it. Raises ValueError if it is invalid."""
    try:
        noted = _PlainUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # unpickling can raise any exception if native code has overwritten the data
        raise ValueError(f"expected how an episode began, got {data[:20]!r}... ({error})") from None
    if not isinstance(noted, dict):
        raise ValueError(f"expected how an episode began, got {noted!r}")
    return noted


def why_not_repeatable(start: Mapping[str, Any]) -> str | None:
    """Returns why no episode can start like this again; None if one can. `start`: what `load_start` has returned."""
    if "options_lost" in start:
        return f"the options of its reset are missing: {start['options_lost']}"
    if start.get("seed") is None and "random_unknown" in start:
        return f"its reset had no seed, and {start['random_unknown']}"
    return None


def repeat_start(env: Any, start: Mapping[str, Any]) -> Any:
    """Resets an env as an episode has started, and returns what the reset returns.

    Args:
        env: The env, built anew.
        start: What `load_start` has returned. Its pickled options come from this program, so they are loaded.

    Raises:
        ValueError: `why_not_repeatable` has a reason.
    """
    if why := why_not_repeatable(start):
        raise ValueError(f"the episode cannot begin again: {why}")
    if "random" in start:
        restore_random_state(env, start["random"])
    options = load([start["pickled_options"]]) if "pickled_options" in start else start.get("options")
    arguments = {"seed": start["seed"], "options": options}
    return env.reset(**{name: value for name, value in arguments.items() if value is not None})


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of plain data, which refuses classes and functions."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def random_state(env: Any) -> dict[str, Any]:
    """Returns a dict: `random` has the state of the env's generator, or `random_unknown` the reason for its absence."""
    try:
        generator = env.unwrapped.np_random
        if not isinstance(generator, np.random.Generator):
            return {"random_unknown": f"its np_random is no Generator, but {type(generator).__name__}"}
        state: Any = generator.bit_generator.state
        if state["bit_generator"] not in _BIT_GENERATORS:
            return {"random_unknown": f"its np_random draws from {state['bit_generator']}, which NumPy does not have"}
        # The state of a PCG64 consists of numbers. The states of other generators have arrays, which `_plain` converts.
        return {"random": state if state["bit_generator"].startswith("PCG64") else _plain(state)}
    except Exception as error:  # a property of the env may raise any exception
        return {"random_unknown": f"its np_random cannot be read ({type(error).__name__}: {error})"}


def restore_random_state(env: Any, random: Mapping[str, Any]) -> None:
    """Sets an env's random generator to a state that `random_state` has returned.

    A generator of the same kind stays in place: parts of the env may refer to it.

    Raises:
        ValueError: The state belongs to a generator that this NumPy lacks, or is invalid.
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
    """Returns whether JSON preserves a value."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
