"""What messages ask of a worker: to call something with one of its envs, or to take note of something itself.

What the worker's loop does by itself has an `_core.Op`. `Op.MESSAGE` hands one of these, pickled, to the worker's
Python side: a `CallEnv` or a
`TakeReplacement` where it names an env, else one of the others. None of them names code of the worker.
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
    """Call `function(env, *args, **kwargs)`, and answer with what it returns.

    Attributes:
        about: What an env is told by it that one built anew is told again, until it is told otherwise; None: nothing.
        again: Told then, as `again(env, derive, ...)`; None: the function once more. `derive`: makes of a seed, from 0
            up, another one, which is a different one for each env that was built for this place.
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
    """Write these numeric infos into columns from now on: the pool's columns from number `first` on."""

    columns: Sequence[InfoColumn]
    first: int


@dataclass(frozen=True)
class TellAgain:
    """Call your envs with what the workers before you, of which there were `replacements`, have called theirs with.

    Attributes:
        told: By env and by what it was about: `CallEnv`s, pickled.
    """

    told: Mapping[int, dict[Hashable, Parts]]
    replacements: int


@dataclass(frozen=True)
class RememberOptions:
    """Give these options, pickled, to all resets of an env that name none."""

    options: Mapping[int, bytes | None]


@dataclass(frozen=True)
class TakeReplacement:
    """The env that was built beside yours takes its place, and yours is closed; or (`is_wanted` False) that one is."""

    is_wanted: bool


@dataclass(frozen=True)
class TakeState:
    """Answer with the state of your env, an `EnvState`."""

    fns: StateFns


@dataclass(frozen=True)
class PutState:
    """The arguments of a reset that puts an env into a state instead.

    Attributes:
        seed: What the seeds of its episodes to come are derived from, where that is new.
    """

    state: EnvState
    seed: Any = None


WorkerRequest: TypeAlias = AddInfoColumns | TellAgain | RememberOptions


def remember(told: dict[Hashable, Parts], about: Hashable, parts: Parts) -> None:
    """Put a pickled call among those that an env was told, as the latest of them."""
    told.pop(about, None)
    told[about] = [bytes(part) for part in parts]  # copies: whose memory it is may go on with it
