"""The messages between shards and their driver: plain data that can be unpickled on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from remuda._cluster.rows import Rows
from remuda._engine.rollouts.shard_rollout import ShardRollout
from remuda._engine.supervision.fault_log import log_alike
from remuda._wire.codec import ColumnSpec
from remuda._wire.env_state import StateSupport
from remuda._wire.requests import CallEnv
from remuda.errors import Fault, RemudaError


@dataclass(frozen=True)
class ShardReport:
    """What has been built.

    Attributes:
        node: The machine.
        observation_spaces, action_spaces: Of each env.
        observation_space: For which rows are laid out.
        metadata, render_mode, spec: Env 0's.
        workers: Name and env ids of each, by the numbers of the shard.
        states: How the state of each env can be taken.
        computed: The columns of `PoolOptions.extras`.
    """

    node: str
    observation_spaces: tuple[Space[Any], ...]
    action_spaces: tuple[Space[Any], ...]
    observation_space: Space[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: Any
    workers: tuple[tuple[str, tuple[int, ...]], ...]
    states: tuple[StateSupport, ...]
    computed: tuple[ColumnSpec, ...]


@dataclass(frozen=True)
class FaultReport:
    """Faults that a shard has dealt with, for the log of the driver.

    Attributes:
        faults: That are alike.
        then: What follows.
    """

    faults: tuple[Fault, ...]
    then: str


@dataclass(frozen=True, kw_only=True)
class FromShard:
    """What every answer of a shard has.

    Attributes:
        fault_reports: Faults that the shard has dealt with since its last answer.
    """

    fault_reports: tuple[FaultReport, ...] = ()

    def log_faults(self) -> None:
        """Logs the faults that came with the answer. To be called last: handlers of logs may raise."""
        for report in self.fault_reports:
            log_alike(report.faults, report.then)


@dataclass(frozen=True)
class Reply(FromShard):
    """The results of a command: a step, a reset, an observation, a restored state.

    Attributes:
        rows: Of the envs that have a result.
        errors: Of those that failed, as the whole pool's.
    """

    rows: Rows | None
    errors: tuple[RemudaError, ...] = ()


@dataclass(frozen=True)
class Answer(FromShard):
    """The answer to anything that is no command: a call into envs, a question, an order to build.

    Attributes:
        value: As that has it; what an env has made is pickled in it.
        error: Raised instead.
    """

    value: Any = None
    error: RemudaError | Exception | None = None


@dataclass
class Legacy:
    """What a shard that succeeds another one has to know, by the shard's numbers of envs.

    Attributes:
        seeds: What the seeds of envs follow from; nothing of those that were given none.
        options: Of resets, where they are to remember any.
        standing: Orders that last, each with its env.
        delay: Seconds to wait before envs are built: several have died at short intervals.
        first_worker: The index of its first worker in the whole.
    """

    seeds: dict[int, int] = field(default_factory=dict)
    options: dict[int, dict[str, Any]] = field(default_factory=dict)
    standing: Sequence[tuple[int, CallEnv]] = ()
    delay: float = 0.0
    first_worker: int = 0


@dataclass(frozen=True)
class RolloutOrder:
    """A request for a rollout.

    Attributes:
        number: The number of the call of `rollouts` that it belongs to. It grows with each call.
        steps: The number of steps.
        version, policy: The policy that acts: its number, and the reference to it in Ray's object store.
        seed: The seed of policies' random numbers.
    """

    number: int
    steps: int
    version: int
    policy: Any
    seed: int


@dataclass(frozen=True)
class RolloutReply(FromShard):
    """The answer to a `RolloutOrder`.

    Attributes:
        rollout: None after an error, or if the rollout was stopped.
        errors: As the whole pool's.
        raised: By the policy: what `_wire.failures.portable` makes of it.
        given: (n,): how many seeds the envs have been given of those that follow from theirs.
    """

    rollout: ShardRollout | None
    errors: tuple[RemudaError, ...] = ()
    raised: tuple[str, str, str, bytes | None] | None = None
    given: npt.NDArray[np.int64] | None = None
