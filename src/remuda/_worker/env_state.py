"""Takes the state of an env and of each wrapper around it, and puts an env into such a state."""

from __future__ import annotations

import copyreg
import io
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

from remuda._wire.codec import ColumnSpec
from remuda._wire.env_state import EnvState, StateFns, StateSupport
from remuda._wire.exceptions import text_of
from remuda._wire.layout import Layout
from remuda._wire.pickling import RefusingFiles, dump_whole
from remuda._worker.own_attribute import own_attribute

# An env's place in its episode: (observation, terminated, truncated, number of steps, end). `end`: None, or after the
# end of the episode the observation and info of a reset in advance (None: the env must still be reset), and the bytes
# of the computed columns at the end (None: the pool has other computed columns). See `WorkerLoop::place_of`.
Place: TypeAlias = "tuple[Any, bool, bool, int, tuple[Any, Any, bytes | None] | None]"

_Reference: TypeAlias = "tuple[int, str | None]"  # the depth of a layer, and its attribute (None: the layer itself)

# The types of attributes that belong to an env, not to its state.
_FIXTURES = (ModuleType, type, FunctionType, BuiltinFunctionType, Space, EnvSpec)
# Unrelated attributes may share an object of these types, so these objects are pickled by value.
_VALUES = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset, range, np.generic, np.dtype, Enum, type)
# The modules of envs that have all their state in attributes.
_PLAIN = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
_REPEATS = (
    "its emulator may repeat the last action (repeat_action_probability > 0), which ale_py's clones do not include; "
    "make it with repeat_action_probability=0, or pass state_fns=(get, put)"
)


@dataclass(frozen=True)
class _Method:
    """A way to take the state of an env and its wrappers.

    Attributes:
        depth: The depth of the layer that the method applies to. The attributes of outer layers are taken.
        get, put: Functions that are called with that layer, or, if they are the caller's, with the outermost layer.
        keeps: Returns whether an attribute of that layer, given by name, is taken, too.
    """

    name: str
    depth: int
    get: Callable[[Any], Any]
    put: Callable[[Any, Any], None]
    keeps: Callable[[str], bool] = lambda name: False


def support_of(env: Any) -> StateSupport:
    """Returns how the state of an env can be taken: the names of its layers and of the method."""
    layers = _layers(env)
    method = _find_method(layers, None)
    if method is not None:
        return StateSupport(_names(layers), method.name)
    return StateSupport(_names(layers), None, _REPEATS if repeats_actions(layers[-1]) else "")


def take_state(env: Any, fns: StateFns, place: Place, layout: Layout, options: bytes | None) -> EnvState:
    """Takes the state of an env. `options`: its lasting reset options, pickled.

    Raises:
        TypeError: The state cannot be pickled, or there is no way to take it.
        Exception: The exceptions of the env's functions, or of the caller's.
    """
    layers = _layers(env)
    method = _find_method(layers, fns)
    if method is None:
        raise TypeError(f"expected an env whose state can be taken, got {type(layers[-1]).__qualname__}")
    state = method.get(env if method.name == "state_fns" else layers[method.depth])
    own = dump_whole((method.put if method.name == "state_fns" else None, state, place, layout.computed, options))
    content = pickle.dumps((own, _dump_attributes(layers, method)), protocol=5)
    _, terminated, truncated, steps, _ = place
    leaves = layout.observation.leaves, layout.action.leaves
    return EnvState(steps, terminated, truncated, _names(layers), leaves, method.name, content)


def put_state(
    env: Any, state: EnvState, computed: Sequence[ColumnSpec], resets_alike: Callable[[bytes | None], bool]
) -> Place:
    """Puts an env into a state and returns its place in the episode.

    Args:
        computed: The computed columns of the pool.
        resets_alike: Whether the env's next reset will have no seed, and these lasting options. If not, a reset in
            advance that the state includes is not used: the env must have its own seed and options.

    Raises:
        ValueError: The state is of another kind of env.
        Exception: The exceptions of the env's functions, or of the caller's. The env's state is undefined then.
    """
    layers = _layers(env)
    if _names(layers) != state.layers:
        raise ValueError(f"expected a state of {_names(layers)}, got one of {state.layers}")
    own, attributes = pickle.loads(state.content)
    put, own_state, place, its_computed, options = pickle.loads(own)  # `put`: the caller's function, if it has one
    fns: StateFns = (put, put) if put else "attributes" if state.method == "attributes" else None
    method = _find_method(layers, fns)
    assert method is not None  # the state was taken from an env of the same classes
    method.put(env if put else layers[method.depth], own_state)
    for depth, kept in enumerate(_Unpickler(io.BytesIO(attributes), layers).load()):
        _replace_attributes(layers[depth], _keeps(method, depth), kept)
    *moment, end = place
    if end is not None:
        obs, info, columns = end
        end = obs, info if resets_alike(options) else None, _rearranged(columns, its_computed, computed)
    return (*moment, end)


def _rearranged(row: bytes, columns: Sequence[ColumnSpec], wanted: Sequence[ColumnSpec]) -> bytes | None:
    """Returns the bytes of the wanted columns from the bytes of a row; None if the row lacks one of them."""
    ends = itertools.accumulate(column.nbytes for column in columns)
    values = {column: row[end - column.nbytes : end] for column, end in zip(columns, ends, strict=True)}
    return b"".join(values[column] for column in wanted) if values.keys() >= set(wanted) else None


# -- layers ------------------------------------------------------------------------------------------------


def _layers(env: Any) -> list[Any]:
    """Returns the env and the envs that it wraps, outermost first."""
    layers = [env]
    while hasattr(inner := own_attribute(layers[-1], "env"), "step"):
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
        if repeats_actions(core):
            return None
        random = ("_np_random", "_np_random_seed")
        restore: Callable[[Any, Any], None] = lambda env, state: env.restore_state(state)  # noqa: E731
        return _Method("clone_state", last, _clone, restore, lambda name: name in random)
    if is_mujoco(core):
        take, put, handles = take_mujoco, put_mujoco, ("model", "data", "mujoco_renderer")
        return _Method("mujoco", last, take, put, lambda name: name not in handles)
    return _by_attributes(last) if type(core).__module__.startswith(_PLAIN) else None


def _by_attributes(depth: int) -> _Method:
    return _Method("attributes", depth, lambda env: None, lambda env, state: None, lambda name: True)


def _has_methods(layer: Any, *names: str) -> bool:
    """Returns whether the class of a layer has these methods. (A wrapper object also has its inner env's.)"""
    return all(callable(getattr(type(layer), name, None)) for name in names)


def _clone(env: Any) -> Any:
    """Clones the state of an env, with its random numbers if `clone_state` has an argument for them, as in ale_py."""
    try:
        return env.clone_state(include_rng=True)
    except TypeError:
        return env.clone_state()


# -- attributes --------------------------------------------------------------------------------------------


def _keeps(method: _Method, depth: int) -> Callable[[str], bool]:
    """Returns a function that takes an attribute's name and returns whether it is part of the layer's state."""
    if depth < method.depth:
        return lambda name: name != "env"
    return method.keeps if depth == method.depth else lambda name: False


def _attributes(layer: Any, keeps: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    for name, value in vars(layer).items():
        if keeps(name) and not isinstance(value, _FIXTURES):
            yield name, value


def _replace_attributes(layer: Any, keeps: Callable[[str], bool], kept: Mapping[str, Any]) -> None:
    """Replaces a layer's attributes by those of a state. Attributes that are not part of a state stay."""
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
    """Returns references to the layers and to attributes that are not part of the state, by `id` of the object."""
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
    """Returns a description of the attribute that cannot be pickled; None if each can be pickled alone."""
    for layer, attributes in zip(layers, kept, strict=True):
        for name, value in attributes.items():
            try:
                _dump(value, references)
            except Exception as error:
                return f"the attribute {name!r} of {type(layer).__qualname__} ({text_of(error)})"
    return None


class _Pickler(RefusingFiles):
    """Pickles objects that are not part of the state as references, which `_Unpickler` resolves in another env."""

    def __init__(self, file: io.BytesIO, references: Mapping[int, _Reference]) -> None:
        super().__init__(file, 5)
        self._references = references

    def persistent_id(self, value: Any) -> _Reference | None:
        return self._references.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, EzPickle):  # the pickling of EzPickle would keep only constructor arguments
            return copyreg.__newobj__, (type(value),), vars(value), None, None, _set_attributes  # type: ignore[attr-defined]
        return super().reducer_override(value)


def _set_attributes(value: Any, attributes: Mapping[str, Any]) -> None:
    vars(value).update(attributes)


class _Unpickler(pickle.Unpickler):
    """Replaces the references of `_Pickler` by layers and attributes of the env that gets the state."""

    def __init__(self, file: Any, layers: Sequence[Any]) -> None:
        super().__init__(file)
        self._layers = layers

    def persistent_load(self, reference: _Reference) -> Any:
        depth, name = reference
        return self._layers[depth] if name is None else getattr(self._layers[depth], name)


Array: TypeAlias = np.ndarray[Any, Any]


def repeats_actions(env: Any) -> bool:
    """Returns whether an env has an emulator of ale_py that repeats its last action at random ("sticky actions").

    The last action is not in ale_py's clones, and ale_py does not return it.
    """
    ale = own_attribute(env, "ale")
    return hasattr(ale, "getFloat") and ale.getFloat("repeat_action_probability") > 0


def is_mujoco(env: Any) -> bool:
    """Returns whether an env has the `model` and `data` of a simulation. Does not import MuJoCo."""
    model, data = own_attribute(env, "model"), own_attribute(env, "data")
    return type(model).__name__ == "MjModel" and type(data).__name__ == "MjData"


def take_mujoco(env: Any) -> tuple[Array, dict[str, Array]]:
    """Returns the state that MuJoCo's next step depends on, including the warm start, and the derived arrays.

    The derived arrays are from before the integration of the last step. Envs read some of them before the next step,
    and computing them from the state would give other values.
    """
    mujoco: Any = import_module("mujoco")
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, state, kind)
    values = ((name, getattr(env.data, name)) for name in dir(env.data) if not name.startswith("_"))
    return state, {name: value.copy() for name, value in values if isinstance(value, np.ndarray) and value.size}


def put_mujoco(env: Any, state: tuple[Array, dict[str, Array]]) -> None:
    """Restores the state and the derived arrays, except those of contacts and constraints, which are recomputed."""
    mujoco: Any = import_module("mujoco")
    model, data, (integrated, derived) = env.model, env.data, state
    mujoco.mj_resetData(model, data)  # this empties the arrays of contacts and constraints
    fixed = [name for name, value in derived.items() if getattr(data, name).shape == value.shape]
    mujoco.mj_setState(model, data, integrated, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    for name in fixed:  # also the solver's warm start, which `mj_forward` has changed
        getattr(data, name)[...] = derived[name]
