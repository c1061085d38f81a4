"""The state of an env, as it travels and is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from remuda._wire.codec import Leaves

StateFns: TypeAlias = "tuple[Callable[[Any], Any], Callable[[Any, Any], None]] | Literal['attributes'] | None"
"""How a state is taken: a function of the env that returns it, and one of env and state that puts it there;
"attributes": all attributes of the env; None: as the env itself offers it."""


@dataclass(frozen=True)
class EnvState:
    """The state of an env in its episode, as `Pool.get_state` returns it and `Pool.set_state` takes it.

    It can be kept for any time, pickled, and put into any env that is made alike, in this pool or another one. Where it
    is put into an env, its `content` is unpickled, which can run any code: take states only from whom you trust.

    Attributes:
        steps: int, of the episode so far; 0 after its end.
        terminated, truncated: bool, whether the episode has ended, and the next one has not begun.
        layers: The classes of the env's wrappers and of the env itself, from outside.
        leaves: The leaves of its observations and of its actions: the path, dtype and shape of each array.
        method: How it was taken: "get_state", "clone_state", "mujoco", "attributes", or "state_fns" for functions of
            the caller's.
        content: bytes, all the rest: the state, the attributes of wrappers, the last observation.
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
        """Whether the next step begins another episode, where steps do that."""
        return self.terminated or self.truncated


@dataclass(frozen=True)
class StateSupport:
    """Describes how the state of an env can be taken.

    Attributes:
        layers: As in an `EnvState`.
        method: The method that is used unless the caller names another; None if there is no method.
    """

    layers: tuple[str, ...]
    method: str | None
