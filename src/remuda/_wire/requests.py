"""The requests to a worker's Python side: to call a function with one of its envs, or to note something itself.

What the worker's loop does by itself has an `_core.Op`. `Op.MESSAGE` carries one of these requests, pickled: a
`CallEnv`, `TakeState` or `TakeReplacement` if it names an env, otherwise one of the others. None of them names code of
the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from remuda._wire.env_state import EnvState, StateFns
from remuda._wire.info_columns import InfoColumn
from remuda._wire.pickling import Parts


@dataclass(frozen=True)
class CallEnv:
    """Calls `function(env, *args, **kwargs)`, and answers with what it returns.

    Attributes:
        about: The key of a lasting call, which is repeated for a rebuilt env unless a later call has the same key;
            None: the call is not repeated.
        again: Is called then as `again(env, derive, ...)`; None: the function is called again. `derive`: returns
            another seed for a seed from 0 up, a different one for each env that was built for this place.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    about: Hashable = None
    again: Callable[..., Any] | None = None

    def run(self, env: Any) -> Any:
        return self.function(env, *self.args, **(self.kwargs or {}))

    def repeat(self, env: Any, derive: Callable[[int], int]) -> Any:
        if self.again is None:
            return self.run(env)
        return self.again(env, derive, *self.args, **(self.kwargs or {}))


@dataclass(frozen=True)
class AddInfoColumns:
    """Adds info columns: the pool's columns from number `first` on."""

    columns: Sequence[InfoColumn]
    first: int


@dataclass(frozen=True)
class TellAgain:
    """Repeats the lasting calls of the workers before this one, of which there were `replacements`.

    Attributes:
        told: The pickled `CallEnv`s, by env and by `about`.
    """

    told: Mapping[int, dict[Hashable, Parts]]
    replacements: int


@dataclass(frozen=True)
class RememberOptions:
    """Gives these options, pickled, to all resets of an env without options of their own."""

    options: Mapping[int, bytes | None]


@dataclass(frozen=True)
class TakeReplacement:
    """Replaces an env by the one that was built beside it; if `is_wanted` is False, closes that one instead."""

    is_wanted: bool


@dataclass(frozen=True)
class TakeState:
    """Answers with the state of an env, an `EnvState`."""

    fns: StateFns


@dataclass(frozen=True)
class PutState:
    """The arguments of a reset that puts an env into a state instead.

    Attributes:
        seed: The new base of the seeds of its next episodes; None: it stays.
    """

    state: EnvState
    seed: Any = None


WorkerRequest: TypeAlias = AddInfoColumns | TellAgain | RememberOptions


def remember(told: dict[Hashable, Parts], about: Hashable, parts: Parts) -> None:
    """Adds a pickled call to the lasting calls of an env, as the latest one."""
    told.pop(about, None)
    told[about] = [bytes(part) for part in parts]  # copies, because the memory of the parts may be reused
