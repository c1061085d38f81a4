"""Checks the arguments of `get_state` and `set_state`, before anything is sent to workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda._engine.engine import Engine
from remuda._wire.codec import Leaves
from remuda._wire.env_state import EnvState, StateSupport
from remuda._wording import name_some
from remuda.errors import InvalidEnvError, StateError

_OFFERS = (
    "get_state and set_state methods, clone_state and restore_state as ale_py's have them, a simulation of MuJoCo, or "
    "one of Gymnasium's classic control and toy text"
)
_FNS = "pass state_fns=(get, put), or state_fns='attributes' if all its state is in attributes"


def check_taken(fns: Any, slots: Sequence[int], engine: Engine) -> None:
    """Checks that `get_state` of these envs works with `fns`. Raises TypeError, ValueError or InvalidEnvError."""
    _check_single("taken", engine)
    is_pair = isinstance(fns, tuple) and len(fns) == 2 and all(map(callable, fns))
    if fns is not None and not is_pair and not (isinstance(fns, str) and fns == "attributes"):
        raise TypeError(f"expected state_fns to be a pair of functions, 'attributes' or None, got {fns!r}")
    if fns is None:
        for slot in slots:
            if (support := _support_of(slot, engine)).method is None:
                raise InvalidEnvError(
                    f"expected envs whose state can be taken ({_OFFERS}), got env {slot}, {_text(support.layers)}; "
                    + (support.refusal or _FNS)
                )


def check_in_episode(slots: Sequence[int], engine: Engine) -> None:
    """Raises StateError unless each slot's last result was received, and its env was reset since it was built."""
    ledger = engine.running.slots
    if (busy := next((slot for slot in slots if not ledger.is_idle(slot)), None)) is not None:
        raise StateError(f"expected envs whose last result was received, but env {busy} is in flight")
    if fresh := [slot for slot in slots if is_fresh(slot, engine)]:
        raise not_in_episode(fresh)


def is_fresh(slot: int, engine: Engine) -> bool:
    """Whether the slot's env was rebuilt, or is being closed to be rebuilt, and has not been reset since."""
    slots = engine.running.slots
    return slots.is_fresh(slot) or not engine.exchange.supervisor.workers.takes_messages(slots.worker_of(slot))


def not_in_episode(envs: Sequence[int]) -> StateError:
    """Returns the error for `get_state` of envs that were rebuilt."""
    return StateError(
        f"expected envs in an episode, or at its end, got {name_some('env', envs)}, rebuilt and not reset yet; step "
        "it, or call reset"
    )


def check_states(states: Any, slots: Sequence[int], engine: Engine) -> list[EnvState]:
    """Returns the states as a list. Raises TypeError or ValueError unless they fit these envs."""
    _check_single("set", engine)
    if not isinstance(states, Sequence) or not all(isinstance(state, EnvState) for state in states):
        raise TypeError(f"expected a sequence of states that get_state has returned, got {states!r}")
    if not slots:
        raise ValueError(
            "expected at least one env to put into a state, got none at env_ids; name some, or None for all"
        )
    if len(states) != len(slots):
        raise ValueError(f"expected {len(slots)} states, one for each env, got {len(states)}")
    codecs = engine.layout.observation, engine.layout.action
    for state, slot in zip(states, slots, strict=True):
        layers = _support_of(slot, engine).layers
        if state.layers != layers:
            raise ValueError(f"expected a state of {_text(layers)} for env {slot}, got one of {_text(state.layers)}")
        for kind, codec, leaves in zip(("observations", "actions"), codecs, state.leaves, strict=True):
            if leaves != codec.leaves:
                raise ValueError(
                    f"expected a state of an env with the {kind} {_shapes(codec.leaves)} for env {slot}, got one with "
                    f"{_shapes(leaves)}; put it into an env that is made as the one that it was taken of"
                )
        if state.is_over and engine.layout.mode.in_same_step:
            raise ValueError(
                f"expected a state within an episode for env {slot}, got one after its end: with "
                "autoreset='same_step' the next one has begun by then"
            )
    return list(states)


def _support_of(slot: int, engine: Engine) -> StateSupport:
    return engine.running.reports[engine.running.slots.env_of(slot)].state


def _check_single(what: str, engine: Engine) -> None:
    if engine.layout.vector_size is not None:
        raise ValueError(
            f"expected envs whose states are {what} one by one, got vector_size={engine.layout.vector_size}: "
            "only the vector env has the position of its envs in their episodes; use call() with its own methods"
        )


def _shapes(leaves: Leaves) -> str:
    return ", ".join(" ".join(map(str, leaf)).strip() for leaf in leaves)


def _text(layers: Sequence[str]) -> str:
    """Returns the class names of wrappers and env as one text, such as "TimeLimit<CartPoleEnv>"."""
    return "<".join(layers) + ">" * (len(layers) - 1)
