"""How an episode begins: what a worker notes before each reset, where faults are recorded."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import cloudpickle
import numpy as np

from remuda import _core

ROOM = _core.BEGINNING_BYTES  # for the text of one


def describe_beginning(env: Any, arguments: Mapping[str, Any]) -> tuple[_core.Entry, bytes]:
    """What kind of reset this is, and as JSON what is needed to begin there again.

    The text has `seed`; `options` where they are plain data, else `pickled_options` in base 64, or why they are
    missing as `options_lost`; and the env's `random` state, or `random_unknown`, why there is none. Nothing is raised:
    a record is no reason for a reset to fail.

    Args:
        env: It is about to be reset.
        arguments: Those of the reset.
    """
    seed, options = arguments.get("seed"), arguments.get("options")
    told: dict[str, Any] = {"seed": seed, **random_state(env)}
    if options is not None:
        told.update(_describe_options(options))
    text = json.dumps(told).encode()
    if len(text) > ROOM and options is not None:
        told = {key: value for key, value in told.items() if key not in ("options", "pickled_options")}
        text = json.dumps({**told, "options_lost": "they are too long"}).encode()
    if seed is not None:
        return _core.Entry.SEEDED_RESET, text
    return (_core.Entry.RESET if options is None else _core.Entry.OPTIONS_RESET), text


def random_state(env: Any) -> dict[str, Any]:
    """`random`: the state of the env's generator as plain data; or `random_unknown`: why it has none."""
    try:
        generator = env.unwrapped.np_random
        if not isinstance(generator, np.random.Generator):
            return {"random_unknown": f"its np_random is no Generator, but {type(generator).__name__}"}
        return {"random": _plain(generator.bit_generator.state)}
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
        return {"pickled_options": base64.b64encode(cloudpickle.dumps(options)).decode()}
    except Exception as error:
        return {"options_lost": f"they cannot be pickled ({error})"}


def _is_plain(value: Any) -> bool:
    """Whether it comes back from JSON as it was."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
