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
from remuda._wire.pickling import Parts, dump


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
class RepeatCalls:
    """Repeats the lasting calls of the workers before this one, of which there were `replacements`.

    Attributes:
        calls: The pickled `CallEnv`s, by env and by `about`.
    """

    calls: Mapping[int, dict[Hashable, Parts]]
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


WorkerRequest: TypeAlias = AddInfoColumns | RepeatCalls | RememberOptions


class RememberedCalls:
    """The lasting calls of envs, pickled. The pool keeps them for successors, and a worker for rebuilt envs."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[Hashable, Parts]] = {}  # by env and by `CallEnv.about`

    def remember(self, env: int, about: Hashable, request: Parts) -> None:
        """Adds a pickled call as the env's latest one, instead of an earlier one with this key."""
        calls = self._calls.setdefault(env, {})
        calls.pop(about, None)
        calls[about] = [bytes(part) for part in request]  # copies, because the memory of the parts may be reused

    def take_over(self, calls: Mapping[int, dict[Hashable, Parts]]) -> None:
        """Adds the calls of the worker before, by env and key."""
        self._calls.update(calls)

    def all(self) -> Mapping[int, dict[Hashable, Parts]]:
        """Returns all calls, by env and key."""
        return self._calls

    def of(self, env: int) -> list[Parts]:
        """Returns the calls of an env, in their order."""
        return list(self._calls.get(env, {}).values())

    def for_successor(self, env_ids: Sequence[int], replacements: int) -> Parts | None:
        """Returns the message for a worker with these envs that follows so many others; None if there are no calls."""
        calls = {env: self._calls[env] for env in env_ids if env in self._calls}
        return dump(RepeatCalls(calls, replacements)) if calls else None
