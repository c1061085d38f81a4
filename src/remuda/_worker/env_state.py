"""Takes the state of an env, and puts an env into it: that of the env itself, and of each wrapper around it."""

from __future__ import annotations

import copyreg
import io
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

from remuda._wire.codec import ColumnSpec
from remuda._wire.env_state import EnvState, StateFns, StateSupport
from remuda._wire.failures import text_of
from remuda._wire.layout import Layout
from remuda._wire.pickling import RefusingFiles, dump_whole
from remuda._worker import simulator_states as simulators

# The format of the worker's loop (`WorkerLoop::place_of`): observation, terminated, truncated, steps, and of a reset in
# advance the observation, the info, and the bytes of the computed columns before it, None if there are other columns.
Place: TypeAlias = "tuple[Any, bool, bool, int, tuple[Any, Any, bytes | None] | None]"

_Reference: TypeAlias = "tuple[int, str | None]"  # a layer, by its depth, or an attribute of one

# Types of attributes that belong to an env, and not to its state.
_FIXTURES = (ModuleType, type, FunctionType, BuiltinFunctionType, Space, EnvSpec)
# An object of these types may be in many places, and is pickled by value.
_VALUES = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset, range, np.generic, np.dtype, Enum, type)
# The modules of envs that have all their state in attributes.
_PLAIN = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")


@dataclass(frozen=True)
class _Method:
    """How the state of an env, and of the wrappers within it, is taken.

    Attributes:
        depth: Of the layer whose state it is. Of those further out attributes are taken.
        get, put: With what they are called: that layer, or for the caller's own functions the outermost.
        keeps: Whether an attribute of that layer is taken, too, by its name.
    """

    name: str
    depth: int
    get: Callable[[Any], Any]
    put: Callable[[Any, Any], None]
    keeps: Callable[[str], bool] = lambda name: False


def support_of(env: Any) -> StateSupport:
    """Returns how the state of an env can be taken, without taking it."""
    layers = _layers(env)
    method = _find_method(layers, None)
    return StateSupport(_names(layers), None if method is None else method.name)


def take_state(env: Any, fns: StateFns, place: Place, layout: Layout) -> EnvState:
    """Takes the state of an env.

    Raises:
        TypeError: It cannot be pickled, or there is no way to take it.
        Exception: What the env's own functions, or the caller's, raise.
    """
    layers = _layers(env)
    method = _find_method(layers, fns)
    if method is None:
        raise TypeError(f"expected an env whose state can be taken, got {type(layers[-1]).__qualname__}")
    state = method.get(env if method.name == "state_fns" else layers[method.depth])
    own = dump_whole((method.put if method.name == "state_fns" else None, state, place, layout.computed))
    content = pickle.dumps((own, _dump_attributes(layers, method)), protocol=5)
    _, terminated, truncated, steps, _ = place
    leaves = layout.observation.leaves, layout.action.leaves
    return EnvState(steps, terminated, truncated, _names(layers), leaves, method.name, content)


def put_state(env: Any, state: EnvState, computed: Sequence[ColumnSpec]) -> Place:
    """Puts an env into a state, and returns where it is then. `computed`: the columns of its pool's caller.

    Raises:
        ValueError: It is another kind of env.
        Exception: What the env's own functions, or the caller's, raise; it may be anywhere then.
    """
    layers = _layers(env)
    if _names(layers) != state.layers:
        raise ValueError(f"expected a state of {_names(layers)}, got one of {state.layers}")
    own, attributes = pickle.loads(state.content)
    put, own_state, place, its_computed = pickle.loads(own)
    method = _find_method(layers, _FNS_OF.get(state.method))
    assert method is not None  # an env of these classes had one
    (put or method.put)(env if put else layers[method.depth], own_state)
    for depth, kept in enumerate(_Unpickler(io.BytesIO(attributes), layers).load()):
        _replace_attributes(layers[depth], _keeps(method, depth), kept)
    *moment, ahead = place
    if ahead is not None:
        obs, info, columns = ahead
        ahead = obs, info, _rearranged(columns, its_computed, computed)
    return (*moment, ahead)


def _rearranged(row: bytes, columns: Sequence[ColumnSpec], wanted: Sequence[ColumnSpec]) -> bytes | None:
    """Returns the bytes of the wanted columns of a row; None if it lacks one of them."""
    ends = itertools.accumulate(column.nbytes for column in columns)
    values = {column: row[end - column.nbytes : end] for column, end in zip(columns, ends, strict=True)}
    return b"".join(values[column] for column in wanted) if values.keys() >= set(wanted) else None


# -- layers ------------------------------------------------------------------------------------------------


def _layers(env: Any) -> list[Any]:
    """Returns the env and the envs that it wraps, from outside."""
    layers = [env]
    while hasattr(inner := getattr(layers[-1], "__dict__", {}).get("env"), "step"):
        layers.append(inner)
    return layers


def _names(layers: Sequence[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


def _find_method(layers: Sequence[Any], fns: StateFns) -> _Method | None:
    last = len(layers) - 1
    if isinstance(fns, tuple):
        return _Method("state_fns", last, *fns)
    return _by_attributes(last) if fns == "attributes" else _offered(layers)


def _offered(layers: Sequence[Any]) -> _Method | None:
    last, core = len(layers) - 1, layers[-1]
    for depth, layer in enumerate(layers):
        if _has_methods(layer, "get_state", "set_state"):
            return _Method("get_state", depth, lambda env: env.get_state(), lambda env, state: env.set_state(state))
    if _has_methods(core, "clone_state", "restore_state"):
        if simulators.is_emulator(core):
            return _Method("clone_state", last, simulators.take_emulator, simulators.put_emulator, _is_random)
        return _Method("clone_state", last, _clone, lambda env, state: env.restore_state(state), _is_random)
    if simulators.is_mujoco(core):
        take, put = simulators.take_mujoco, simulators.put_mujoco
        return _Method("mujoco", last, take, put, simulators.is_beside_mujoco)
    return _by_attributes(last) if type(core).__module__.startswith(_PLAIN) else None


def _by_attributes(depth: int) -> _Method:
    return _Method("attributes", depth, _nothing, _put_nothing, lambda name: True)


def _nothing(env: Any) -> None:
    return None


def _put_nothing(env: Any, state: None) -> None:
    return None


# By the name of a method, the argument that selects it again. The caller's own function comes with the state.
_FNS_OF: dict[str, StateFns] = {"attributes": "attributes", "state_fns": (_nothing, _put_nothing)}


def _has_methods(layer: Any, *names: str) -> bool:
    """Whether the class of a layer has these methods. Wrappers pass on the attributes of what they wrap."""
    return all(callable(getattr(type(layer), name, None)) for name in names)


def _clone(env: Any) -> Any:
    """Clones an env with its random numbers, if its method has that argument of ale_py's."""
    try:
        return env.clone_state(include_rng=True)
    except TypeError:
        return env.clone_state()


def _is_random(name: str) -> bool:
    return name in ("_np_random", "_np_random_seed")


# -- attributes --------------------------------------------------------------------------------------------


def _keeps(method: _Method, depth: int) -> Callable[[str], bool]:
    """Whether an attribute of the layer at that depth is taken, by its name."""
    if depth < method.depth:
        return lambda name: name != "env"
    return method.keeps if depth == method.depth else lambda name: False


def _attributes(layer: Any, keeps: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    for name, value in vars(layer).items():
        if keeps(name) and not isinstance(value, _FIXTURES):
            yield name, value


def _replace_attributes(layer: Any, keeps: Callable[[str], bool], kept: Mapping[str, Any]) -> None:
    """Replaces the attributes by those that were taken. Attributes that belong to the env itself stay."""
    for name in [name for name, _ in _attributes(layer, keeps) if name not in kept]:
        del vars(layer)[name]
    vars(layer).update(kept)


def _dump_attributes(layers: Sequence[Any], method: _Method) -> bytes:
    kept = [dict(_attributes(layer, _keeps(method, depth))) for depth, layer in enumerate(layers)]
    references = _references(layers, kept)
    try:
        return _dump(kept, references)
    except Exception as error:
        culprit = _culprit(layers, kept, references) or text_of(error)
        raise TypeError(f"expected a state that can be pickled, got {culprit}; pass state_fns=(get, put)") from error


def _references(layers: Sequence[Any], kept: Sequence[Mapping[str, Any]]) -> dict[int, _Reference]:
    """Returns references by id: to the layers, and to those of their attributes that are not taken."""
    found: dict[int, _Reference] = {}
    for depth, (layer, attributes) in enumerate(zip(layers, kept, strict=True)):
        for name, value in vars(layer).items():
            if name not in attributes and not isinstance(value, _VALUES):
                found[id(value)] = depth, name
    return found | {id(layer): (depth, None) for depth, layer in enumerate(layers)}


def _dump(value: Any, references: Mapping[int, _Reference]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, references).dump(value)
    return file.getvalue()


def _culprit(
    layers: Sequence[Any], kept: Sequence[Mapping[str, Any]], references: Mapping[int, _Reference]
) -> str | None:
    """Describes the attribute that cannot be pickled; None if each can be pickled alone."""
    for layer, attributes in zip(layers, kept, strict=True):
        for name, value in attributes.items():
            try:
                _dump(value, references)
            except Exception as error:
                return f"the attribute {name!r} of {type(layer).__qualname__} ({text_of(error)})"
    return None


class _Pickler(RefusingFiles):
    """Pickles references to what stays in the env that is put into the state, instead of copies."""

    def __init__(self, file: io.BytesIO, references: Mapping[int, _Reference]) -> None:
        super().__init__(file)
        self._references = references

    def persistent_id(self, value: Any) -> _Reference | None:
        return self._references.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, EzPickle):  # that would pickle how it was made, and not what has become of it
            return copyreg.__newobj__, (type(value),), vars(value), None, None, _set_attributes  # type: ignore[attr-defined]
        return super().reducer_override(value)


def _set_attributes(value: Any, attributes: Mapping[str, Any]) -> None:
    vars(value).update(attributes)


class _Unpickler(pickle.Unpickler):
    """Resolves the references in the env that is put into the state."""

    def __init__(self, file: Any, layers: Sequence[Any]) -> None:
        super().__init__(file)
        self._layers = layers

    def persistent_load(self, reference: _Reference) -> Any:
        depth, name = reference
        return self._layers[depth] if name is None else getattr(self._layers[depth], name)
