"""The requests to a worker's Python side: to call a function with one of its envs, or to store something.

Operations of the worker's loop have an `_core.Op`. `Op.MESSAGE` carries one of these requests, pickled: a `CallEnv`,
`CloseEnv`, `TakeState` or `TakeReplacement` if it names an env, otherwise one of the others. No request refers to code
of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from remuda._wire.env_state import EnvState, StateFns
from remuda._wire.info_columns import InfoColumn
from remuda._wire.pickling import Buffers, dump

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class CallEnv:
    """A request to call `function(env, *args, **kwargs)` and to answer with the result.

    Attributes:
        about: The key of a lasting call, which is repeated for a rebuilt env unless a later call has the same key;
            None: the call is not repeated.
        on_rebuild: Called for a rebuilt env, as `on_rebuild(env, derive, ...)`; None: `function` is called again.
            `derive(seed)` returns another seed for a seed >= 0, a different one for each env that was built in this
            place.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    about: Hashable = None
    on_rebuild: Callable[..., Any] | None = None

    def reads(self, env: Any) -> bool:
        """Returns whether the call only reads the env, so that an episode can be played again without it."""
        only_reads: Callable[..., bool] | None = getattr(self.function, "only_reads", None)
        return self.args[:1] == ("render",) or (only_reads is not None and only_reads(env, *self.args))

    def run(self, env: Any) -> Any:
        return self.function(env, *self.args, **(self.kwargs or {}))

    def repeat(self, env: Any, derive: Callable[[int], int]) -> Any:
        if self.on_rebuild is None:
            return self.run(env)
        return self.on_rebuild(env, derive, *self.args, **(self.kwargs or {}))


def reading_if(only_reads: Callable[..., bool]) -> Callable[[_Function], _Function]:
    """Marks a function for `CallEnv` that only reads the env if `only_reads(env, *args)` returns True."""

    def mark(function: _Function) -> _Function:
        function.only_reads = only_reads  # type: ignore[attr-defined]
        return function

    return mark


def reading(function: _Function) -> _Function:
    """Marks a function for `CallEnv` that only reads the env."""
    return reading_if(_always)(function)


def _always(*_: Any) -> bool:
    return True


@dataclass(frozen=True)
class AddInfoColumns:
    """A request to add columns for infos. The first of them has the number `first`."""

    columns: Sequence[InfoColumn]
    first: int


@dataclass(frozen=True)
class RepeatCalls:
    """A request to repeat the lasting calls (see `CallEnv.about`) that the worker's predecessors received.

    Attributes:
        calls: The pickled `CallEnv`s, by env and by `about`.
        replacements: The number of predecessors.
    """

    calls: Mapping[int, dict[Hashable, Buffers]]
    replacements: int


@dataclass(frozen=True)
class RememberOptions:
    """A request to pass these pickled options, by env, to later resets that are sent without options.

    `change`: the pool's number of this request, from 1 up.
    """

    options: Mapping[int, bytes | None]
    change: int


@dataclass(frozen=True)
class TakeReplacement:
    """A request to use the replacement that was built for an env. If not `is_wanted`, the replacement is closed."""

    is_wanted: bool


@dataclass(frozen=True)
class CloseEnv:
    """A request to close an env, which has failed. Its next reset, or a call, builds it again."""


@dataclass(frozen=True)
class TakeState:
    """A request to answer with the `EnvState` of an env."""

    fns: StateFns


@dataclass(frozen=True)
class PutState:
    """The arguments of a reset that puts an env into a state.

    Attributes:
        seed: The new base of the seeds of its next episodes; None: unchanged.
    """

    state: EnvState
    seed: Any = None


WorkerRequest: TypeAlias = AddInfoColumns | RepeatCalls | RememberOptions


class RememberedCalls:
    """The lasting calls of envs (`CallEnv.about`), pickled: the pool's for successors, a worker's for rebuilt envs."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[Hashable, Buffers]] = {}  # the calls, by env and by `CallEnv.about`

    def remember(self, env: int, about: Hashable, request: Buffers) -> None:
        """Adds a pickled call as the env's latest one, and removes an earlier call with the key `about`."""
        calls = self._calls.setdefault(env, {})
        calls.pop(about, None)
        calls[about] = [bytes(part) for part in request]  # copied, because the memory of the parts may be reused

    def take_over(self, calls: Mapping[int, dict[Hashable, Buffers]]) -> None:
        """Adds the calls that the worker's predecessor remembered."""
        self._calls.update(calls)

    def all(self) -> Mapping[int, dict[Hashable, Buffers]]:
        """Returns the calls of all envs, by env and by `CallEnv.about`."""
        return self._calls

    def of(self, env: int) -> list[Buffers]:
        """Returns the calls of an env, in the order in which they were made."""
        return list(self._calls.get(env, {}).values())

    def for_successor(self, env_ids: Sequence[int], replacements: int) -> Buffers | None:
        """Returns the pickled `RepeatCalls` for a worker with these envs; None if no call was remembered for them."""
        calls = {env: self._calls[env] for env in env_ids if env in self._calls}
        return dump(RepeatCalls(calls, replacements)) if calls else None
