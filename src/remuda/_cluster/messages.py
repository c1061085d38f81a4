"""The messages between shards and their driver: plain data that can be unpickled on any machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from remuda import _core
from remuda._engine.batches.infos import RawRow
from remuda._engine.startup.start import Counts, Inheritance
from remuda._engine.supervision.fault_log import log_alike
from remuda._wire.info_columns import InfoField
from remuda._wire.pickling import Buffers, dump, dump_whole
from remuda.errors import Fault, RemudaError

Array: TypeAlias = "npt.NDArray[Any]"

_LARGE = 1 << 16  # bytes; Ray puts answers of more than 100 kB into its object store

Figures: TypeAlias = "tuple[bytes, bytes, bytes]"
"""The figures of a shard's envs, of its workers, and of their meters, as bytes of its memory."""


# -- to a shard -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BuildOrder:
    """An order to build the envs of a shard, with the options of its pool.

    Attributes:
        env_fns: The factories, pickled.
        first_env, first_worker: The numbers of the first env and of the first worker in the whole pool. With
            `num_workers="auto"`, errors of `build` have the worker's number as if each env had a worker.
        path: The driver's import path.
        options: The options of the shard's pool, pickled.
        inherited: The state of the envs that these replace; None if they replace none.
        layout: The layout of the pool, pickled, which the envs of a successor must fit; None for other shards.
        replaced: By index in `env_fns`: the pickled factory of an env that has replaced another one.
    """

    env_fns: bytes
    first_env: int
    first_worker: int
    path: Sequence[str]
    options: bytes
    inherited: Inheritance | None = None
    layout: bytes | None = None
    replaced: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class RowCommand:
    """A command to some envs, each of which answers with a row.

    Attributes:
        op: RESET, STEP or OBSERVE.
        env_ids: The envs by the numbers of their shard; None: all of them, in order.
        arrays: The columns of the actions of a step.
        blobs: The parts without a column, pickled, for each env object: objects in actions, or arguments of a reset.
    """

    op: _core.Op
    env_ids: list[int] | None
    arrays: tuple[Array, ...] = ()
    blobs: list[Buffers | None] | None = None


@dataclass(frozen=True)
class MessageCommand:
    """A message to a worker of a shard, or to one of its envs.

    Attributes:
        op: The core's operation.
        worker: The index of the worker in the shard.
        env: The env by its number in the shard; -1: the message is for the worker.
        parts: The pickled request.
        sequence: The number that the answer carries.
    """

    op: _core.Op
    worker: int
    env: int
    parts: Buffers
    sequence: int


Command: TypeAlias = RowCommand | MessageCommand


@dataclass(frozen=True)
class RolloutOrder:
    """A request for a rollout.

    Attributes:
        number: The number of its call of `rollouts`. It grows with each call.
        steps: The number of steps.
        version, policy: The policy that acts: its number, and a list with the reference to it in Ray's object store.
        seed: The seed of policies' random numbers.
    """

    number: int
    steps: int
    version: int
    policy: Any
    seed: int


# -- from a shard ---------------------------------------------------------------------------------------------


FaultReport: TypeAlias = "tuple[list[Fault], str]"
"""Faults that are alike, which a shard has handled, and the consequence in words, for the log of the driver."""


@dataclass(frozen=True, kw_only=True)
class FromShard:
    """The base of all answers of a shard.

    Attributes:
        fault_reports: Faults that the shard has handled since its last answer.
    """

    fault_reports: tuple[FaultReport, ...] = ()

    def log_faults(self) -> None:
        """Logs the faults that came with the answer. Raises the exceptions of log handlers."""
        for faults, then in self.fault_reports:
            log_alike(faults, then)


@dataclass(frozen=True)
class ShardReport:
    """The envs and workers that a shard has built.

    Attributes:
        workers: Name and env ids of each worker, by the numbers of the shard.
        reports: The reports of the envs, pickled, because their spaces may be of the program's own classes; None for
            a successor, which has checked that its envs fit.
    """

    workers: tuple[tuple[str, tuple[int, ...]], ...]
    reports: bytes | None


@dataclass
class Rows:
    """Result rows of some envs of a shard.

    Attributes:
        env_ids: (n,) int64, by the numbers of the shard.
        columns: (n, ...) arrays: reward, terminated, truncated, the mask of info columns or None, the leaves of the
            observation, and the caller's own columns.
        finals: (n, ...) arrays: the leaves of terminal observations; None: there are none.
        infos: (n, ...) arrays: the columns of infos; None: no row has any.
        fields: The fields of these columns.
        extras: The data without a column, by row.
    """

    env_ids: npt.NDArray[np.int64]
    columns: list[Any]
    finals: list[Array] | None = None
    infos: list[Array] | None = None
    fields: tuple[InfoField, ...] = ()
    extras: dict[int, RawRow] | None = None

    @property
    def nbytes(self) -> int:
        """The size of all arrays of the rows together, in bytes."""
        arrays = [*self.columns, *(self.finals or ()), *(self.infos or ())]
        return sum(array.nbytes for array in arrays if array is not None)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Rows:
        """Returns the rows for which the mask `chosen` is True."""
        if chosen.all():
            return self
        places = {old: new for new, old in enumerate(np.flatnonzero(chosen).tolist())}
        return Rows(
            self.env_ids[chosen],
            [None if column is None else column[chosen] for column in self.columns],
            None if self.finals is None else [column[chosen] for column in self.finals],
            None if self.infos is None else [column[chosen] for column in self.infos],
            self.fields,
            {places[old]: raw for old, raw in (self.extras or {}).items() if old in places},
        )


@dataclass(frozen=True)
class Reply(FromShard):
    """The answer to commands. Each env with a command has a row or a failure in it, is still pending, or is lost.

    Each message has an answer in this reply or in a later one, even if its worker dies.

    Attributes:
        rows: The rows that have come, in groups of envs.
        progress: (n, 8): the counts of all envs of the shard.
        failures: The exceptions of envs: each env, by the numbers of the shard, and the result of `EnvHost.describe`.
        lost: The error of each env that will never answer, by the numbers of the shard.
        to_reset: The envs, by the numbers of the shard, that the caller must reset because they were rebuilt. A command
            to them that has no row in the reply was refused.
        answers: Answers to messages, by sequence: flags and parts.
        pending: The number of results and answers that come with later replies.
    """

    rows: list[Rows]
    progress: Counts
    failures: list[tuple[int, Buffers]] = field(default_factory=list)
    lost: dict[int, RemudaError] = field(default_factory=dict)
    to_reset: list[int] = field(default_factory=list)
    answers: dict[int, tuple[int, Buffers]] = field(default_factory=dict)
    pending: int = 0

    def pack(self) -> Reply | bytes:
        """Pickles a small reply, because Ray would need longer to pickle it. Ray passes bytes on unchanged.

        Returns a large reply as it is: Ray puts it into its object store, where its arrays are not copied.
        """
        return self if sum(rows.nbytes for rows in self.rows) > _LARGE else dump_whole(self)


def abandoned(error: RemudaError, loss: RemudaError | None) -> tuple[int, Buffers]:
    """Returns flags and parts of the answer to a command or message that only an error can answer.

    `loss`: the error by which the env was lost; None if the env is not lost.
    """
    return _core.IS_FAILURE | _core.ABANDONED, [bytes(part) for part in dump((error, loss))]


@dataclass(frozen=True)
class Answer(FromShard):
    """The answer to a method of the shard such as `build` or `rollout`. Commands have another answer.

    Attributes:
        value: The result.
        error: The error that is raised instead.
        raised: The exception that a policy raised instead: the result of `_wire.failures.portable`.
    """

    value: Any = None
    error: Exception | None = None
    raised: tuple[str, str, str, bytes | None] | None = None
