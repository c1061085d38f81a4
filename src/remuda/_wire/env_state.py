"""The state of an env, in the form in which it is sent and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from remuda._wire.codec import Leaves

StateFns: TypeAlias = "tuple[Callable[[Any], Any], Callable[[Any, Any], None]] | Literal['attributes'] | None"
"""The way to take a state: two functions, `get(env)` that returns it and `put(env, state)` that restores it;
"attributes": all attributes of the env; None: the env's own method."""


@dataclass(frozen=True)
class EnvState:
    """The state of an env in its episode, as `Pool.get_state` returns it and `Pool.set_state` takes it.

    It can be stored, pickled, and put into any env of the same kind, in this pool or another one. Putting it into an
    env unpickles its `content`, which can run any code: use only states from sources that you trust.

    Attributes:
        steps: int, the number of steps of the episode so far; 0 after its end.
        terminated, truncated: bool, whether the episode has ended and the next one has not begun.
        layers: The class names of the env's wrappers, outermost first, and of the env itself.
        leaves: The leaves of observations and of actions: the path, dtype and shape of each array.
        method: The method that took it: "get_state", "clone_state", "mujoco", "attributes", or "state_fns" for the
            caller's functions.
        content: bytes, everything else: the state, the attributes of wrappers, the last observation.
    """

    steps: int
    terminated: bool
    truncated: bool
    layers: tuple[str, ...]
    leaves: tuple[Leaves, Leaves]
    method: str
    content: bytes = field(repr=False)

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended and the next one has not begun."""
        return self.terminated or self.truncated


@dataclass(frozen=True)
class StateSupport:
    """The way in which the state of an env can be taken.

    Attributes:
        layers: See `EnvState`.
        method: The default method; None if there is no method.
        refusal: The reason why the env's own method is not used; empty if there is no such reason.
    """

    layers: tuple[str, ...]
    method: str | None
    refusal: str = ""
