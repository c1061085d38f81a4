"""The layout of a pool's shared memory, which the pool and its workers compute alike."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from gymnasium import Space

from remuda import _core
from remuda._wire.autoreset import AUTORESET_MODES, AutoresetMode
from remuda._wire.codec import ColumnSpec, SpaceCodec
from remuda._wire.info_columns import InfoColumn
from remuda._wording import name_some
from remuda.errors import InvalidEnvError

T = TypeVar("T")

# The columns that every pool has after that of rewards, in the core's order. The last is the mask of info columns.
_FIXED = (
    ColumnSpec("terminated", np.dtype(np.bool_), ()),
    ColumnSpec("truncated", np.dtype(np.bool_), ()),
    ColumnSpec("info mask", np.dtype(np.uint64), ()),
)

# A worker publishes results of cheap steps together, at most this many ns after the last publication.
PUBLISH_NS = 20_000
_LOG_ROWS = 1 << 31  # the core counts the rows of all logs in 32 bits
_LEAST_ENTRIES = 16  # the least number of entries of an action log, however large the actions are


@dataclass(frozen=True)
class Spinning:
    """The time that a pool and its workers may spin while they wait; 0 by default. See `core/ipc/spin_policy.hpp`.

    Attributes:
        worker_ns: Nanoseconds for each worker.
        pool_ns: Nanoseconds for the pool's caller.
        one_sleeps: Whether one of the workers leaves its core to the caller.
        ignore_load: Whether they spin even if other programs need their cores. Only for comparison in benchmarks.
    """

    worker_ns: int = 0
    pool_ns: int = 0
    one_sleeps: bool = False
    ignore_load: bool = False


class ResultColumns(NamedTuple):
    """The columns of a result, in the order of the arena.

    Attributes:
        fixed: Reward, terminated, truncated, and the mask of info columns.
        infos: One column of bytes that holds all info columns (see `Layout.info_column`).
        obs: The leaves of the observation.
        computed: The caller's own columns.
        final_obs: The leaves of the terminal observation, with same-step autoreset; otherwise empty.
    """

    fixed: Sequence[Any]
    infos: Sequence[Any]
    obs: Sequence[Any]
    computed: Sequence[Any]
    final_obs: Sequence[Any]


@dataclass(frozen=True)
class Layout:
    """The few numbers that determine every offset in the arena.

    Attributes:
        envs_of_worker: The number of envs of each worker. Envs are assigned in order, the spares last.
        frames: The number of frames that can be leased, without the scratch frame.
        observation_space, action_space: The spaces of a single env.
        info_bytes: The bytes for info columns in each row.
        blob_bytes: The bytes for pickled data in flight, per worker and direction.
        keeps_last: Whether each slot's last observation is kept, in case its env fails or is renewed.
        renew_every: The number of episodes after which an env is rebuilt; 0: never.
        max_memory: The bytes that a worker may use before it is replaced between two episodes; 0: no limit.
        renews_workers: Whether workers can be replaced. Then a worker with a single env is replaced for a renewal.
        log_bytes: The bytes of each env's log of commands, which is read if it fails; 0: there is no log.
        resumes: Whether the log also has what is needed to resume episodes.
        spares: The number of envs without a slot at first.
        vector_size: The number of envs in each vector env; None if factories build single envs. The envs of a vector
            env are neighbours and have the same worker.
        reward_shape: The shape of a reward: () for a number, (k,) for a vector.
        any_observation: Whether the caller chose `observation_space`, so that envs may report other ones.
        resets_ahead: Whether a worker resets an env as soon as its episode is over, without a command.
        spinning: The times for which the pool and its workers may spin.
        rollout_rows: The largest number of rows of all rollouts together. Only rows in use take memory.
        computed: The caller's own columns.
        step_columns: The number of them that are step columns, see `StepColumn`. These come last.
        must_agree: See `EnvReport`.
    """

    envs_of_worker: tuple[int, ...]
    frames: int
    autoreset: str
    observation_space: Space[Any]
    action_space: Space[Any]
    spinning: Spinning = field(default_factory=Spinning)
    info_bytes: int = 512
    blob_bytes: int = 1 << 16
    keeps_last: bool = False
    renew_every: int = 0
    renews_workers: bool = False
    log_bytes: int = 0
    resumes: bool = False
    spares: int = 0
    resets_ahead: bool = False
    vector_size: int | None = None
    rollout_rows: int = 0
    computed: tuple[ColumnSpec, ...] = ()
    any_observation: bool = False
    max_memory: int = 0
    reward_shape: tuple[int, ...] = ()
    step_columns: int = 0
    must_agree: Agreed = ()
    observation: SpaceCodec = field(init=False, repr=False, compare=False)
    action: SpaceCodec = field(init=False, repr=False, compare=False)
    plan: _core.Plan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation", SpaceCodec(self.observation_space))
        object.__setattr__(self, "action", SpaceCodec(self.action_space))
        object.__setattr__(self, "plan", _core.Plan(**self.plan_arguments()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @property
    def mode(self) -> AutoresetMode:
        """The properties of the autoreset mode."""
        return AUTORESET_MODES[self.autoreset]

    @property
    def num_envs(self) -> int:
        """The number of envs, spares included."""
        return sum(self.envs_of_worker)

    @property
    def row_bytes(self) -> int:
        """The number of bytes of one env's result and action in a rollout."""
        actions = [column.nbytes for column in self.action.columns]
        return sum([*self._column_bytes(), *actions])

    @property
    def num_slots(self) -> int:
        return self.num_envs - self.spares

    @property
    def width(self) -> int:
        """The number of slots that one env object fills: more than 1 for a vector env."""
        return self.vector_size or 1

    def ids_with(self, env: int) -> range:
        """Returns the ids of all envs of the env object that has this env: one id, or those of a whole vector env."""
        first = env - env % self.width
        return range(first, first + self.width)

    def by_env(self, items: Sequence[T]) -> list[Sequence[T]]:
        """Groups items by env object. `items` has one item for each slot; the slots of an env object are neighbours."""
        return [items[first : first + self.width] for first in range(0, len(items), self.width)]

    def renews_in_place(self, worker: int) -> bool:
        return not (self.renews_workers and self.envs_of_worker[worker] == 1)

    def first_env(self, worker: int) -> int:
        return sum(self.envs_of_worker[:worker])

    def worker_spec(self, worker: int) -> _core.WorkerSpec:
        """Returns the settings of the loop of the worker with this index."""
        return _core.WorkerSpec(
            index=worker,
            first_env=self.first_env(worker),
            is_vector=self.vector_size is not None,
            autoreset=self.mode.core,
            resets_ahead=self.resets_ahead,
            spin_ns=self.spinning.worker_ns,
            ignore_load=self.spinning.ignore_load,
            publish_ns=PUBLISH_NS,
            renew_every=self.renew_every,
            watches_memory=self.max_memory != 0,
            renews_in_place=self.renews_in_place(worker),
            has_successors=self.renews_workers,
        )

    def worker_of(self, env: int) -> int:
        """Returns the worker that hosts an env."""
        return bisect.bisect_right(list(accumulate(self.envs_of_worker)), env)

    @property
    def _result_specs(self) -> ResultColumns:
        """The `ColumnSpec` of each column of a result."""
        leaves = self.observation.columns
        infos = ColumnSpec("infos", np.dtype(np.uint8), (self.info_bytes,))
        reward = ColumnSpec("reward", np.dtype(np.float64), self.reward_shape)
        return ResultColumns(
            [reward, *_FIXED], [infos], leaves, self.computed, leaves if self.mode.in_same_step else []
        )

    def _column_bytes(self) -> list[int]:
        """Returns the number of bytes of one row in each column of a result."""
        return [spec.nbytes for specs in self._result_specs for spec in specs]

    def plan_arguments(self) -> dict[str, Any]:
        """Returns the arguments from which `_core.Plan` is made."""
        log_entries, log_object_bytes = self._divide_log()
        return {
            "workers": len(self.envs_of_worker),
            "slots": self.num_slots,
            "envs": self.num_envs,
            "frames": self.frames + 1,
            "ring_capacity": 1 << (63 + 2 * max(self.envs_of_worker)).bit_length(),  # a power of two
            "blob_bytes": self.blob_bytes,
            "action_bytes": [column.nbytes for column in self.action.columns],
            "column_bytes": self._column_bytes(),
            "width": self.width,
            "keeps_last": self.keeps_last,
            "log_entries": log_entries,
            "log_object_bytes": log_object_bytes,
            "resumes": self.resumes,
            "rollout_rows": self.rollout_rows,
        }

    def _divide_log(self) -> tuple[int, int]:
        """Returns the number of entries of an action log, and its bytes for action values without a column."""
        # To resume episodes, also the actions of another dtype are kept, which travel as objects.
        object_bytes = self.log_bytes // 2 if self.action.num_objects or self.resumes else 0
        entry_bytes = 1 + sum(column.nbytes for column in self.action.columns) + (8 if self.resumes else 0)
        most = _LOG_ROWS // self.num_envs
        entries = min((self.log_bytes - object_bytes) // entry_bytes, most)
        return (max(entries, _LEAST_ENTRIES) if self.log_bytes else 0), object_bytes

    # -- columns over an arena -------------------------------------------------------------------------

    def result_columns(self, arena: _core.Arena) -> ResultColumns:
        """Returns the `_core.Column` of each column of a result."""
        offsets = iter(self.plan.columns)
        groups = [_columns(arena, specs, list(islice(offsets, len(specs)))) for specs in self._result_specs]
        return ResultColumns(*groups)

    def action_columns(self, arena: _core.Arena) -> list[_core.Column]:
        return _columns(arena, self.action.columns, self.plan.actions)

    def sent_actions(self, arena: _core.Arena) -> _core.Actions:
        """Returns the hub's columns for actions. If NumPy cannot cast actions safely, `SpaceCodec` converts them."""
        specs = zip(self.action_columns(arena), self.action.columns, strict=True)
        columns = [_core.ActionColumn(column, _bounds(spec)) for column, spec in specs]
        if self.action.num_objects:  # the pool splits actions with objects, and passes arrays to the hub
            all_columns = "tuple", tuple(("column", i) for i in range(len(columns)))
            return _core.Actions(columns, all_columns, lambda arrays, _: arrays)
        return _core.Actions(columns, self.action.nest, self.action.columns_of)

    def log_columns(self, arena: _core.Arena) -> list[_core.Column]:
        """Returns the columns of the actions in the workers' action logs."""
        return _columns(arena, self.action.columns, self.plan.log_actions)

    def info_column(self, arena: _core.Arena, column: InfoColumn) -> _core.Column:
        offset = self.plan.columns[_core.INFO_COLUMN] + column.offset * self.plan.rows
        return arena.column(column.dtype, list(column.shape), offset)


def _bounds(spec: ColumnSpec) -> list[tuple[int, int]] | None:
    """Returns the bounds that the hub checks actions against: None for a Box, [] if only `SpaceCodec` checks them."""
    if spec.choices is None:
        return None
    lows, highs = np.broadcast_arrays(*spec.choices)
    return list(zip(lows.ravel().tolist(), highs.ravel().tolist(), strict=True)) if spec.dtype == np.int64 else []


def _columns(arena: _core.Arena, specs: Sequence[ColumnSpec], offsets: list[int]) -> list[_core.Column]:
    return [arena.column(one.dtype, list(one.shape), offset) for one, offset in zip(specs, offsets, strict=True)]


Agreed: TypeAlias = "tuple[tuple[str, Any], ...]"
"""Names and values, which can be pickled. The class in which a face wraps its envs has them as `must_agree`."""


def check_agreed(expected: Agreed, name: str, found: Mapping[int, Agreed]) -> None:
    """Checks that each env in `found` has the expected values. Errors name their source by `name`.

    Raises:
        InvalidEnvError: Names the envs and the difference.
    """
    for what, value in expected:
        others = {env_id: dict(own).get(what) for env_id, own in found.items() if dict(own).get(what) != value}
        if others:
            raise InvalidEnvError(
                f"expected the {what} of all envs to be {value}, as for {name}, got {next(iter(others.values()))} for "
                f"{name_some('env', others)}; make them equal, in the same order"
            )


def check_same_rewards(expected: tuple[int, ...], name: str, found: Mapping[int, tuple[int, ...]]) -> None:
    """Checks that the rewards of each env in `found` have the expected shape. Errors name its source by `name`.

    Raises:
        InvalidEnvError: Names the envs and the difference.
    """
    others = {env_id: shape for env_id, shape in found.items() if shape != expected}
    if others:
        raise InvalidEnvError(
            f"expected rewards of the shape {expected} from all envs, as for {name}, got "
            f"{next(iter(others.values()))} for {name_some('env', others)}; their `reward_space` declares it"
        )
