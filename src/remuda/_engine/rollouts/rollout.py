"""Rollouts: T steps of n envs, which workers write into the memory that the learner reads.

A rollout has turns: each one has the observations of envs, and sends them actions by `act`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import numpy as np

from remuda import _core
from remuda._engine.batches.batch import Batch
from remuda._engine.batches.infos import MadeEnd, MadeRow, RawRow, rows_of_envs, stack_rollout
from remuda._engine.engine import Engine
from remuda._engine.rollouts.advantages import HasAdvantages
from remuda._engine.rollouts.columns import Columns, Declared
from remuda._error_frames import holds_nothing
from remuda._system.memory import check_memory
from remuda._tensors import page_locks
from remuda.errors import Fault, StateError

if TYPE_CHECKING:
    import torch

    from remuda._tensors.tensors import TensorRollout

Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_MOST_ROWS = (1 << 32) - 1  # the core counts rows in 32 bits
_REMEDY = "use fewer steps, or let go of rollouts (and of arrays of them) that you still hold"


class SteppedEnvs(Protocol):
    """The members of `Part` that rollouts use to step the envs of a part."""

    _engine: Engine
    _part: int

    @property
    def env_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def _ids(self) -> list[int]: ...
    def send(self, actions: Any, env_ids: Any = None) -> None: ...
    def recv(self, min_envs: int | None = None) -> Batch: ...
    def _receive(self) -> Batch: ...


class Rollout(HasAdvantages):
    """T steps of n envs in one block of memory, which the workers fill in place. `Pool.rollout` returns it::

        rollout = pool.rollout(128)
        for step in rollout:  # 128 times
            values, actions = model(step.obs)
            step.act(actions, value=values)
        rollout.obs, rollout.actions, rollout.rewards, rollout.columns["value"]

    Arrays are writable views of the pool's shared memory; nothing is copied. They stay valid while you hold the
    rollout, an array of it, or a view of one. A learner must ignore rows that are not `valid`.

    Attributes:
        steps: T.
        num_envs: n.
        env_ids: (n,) int64: the env of each column.
        obs: (T + 1, n, ...), or a dict or tuple of such: the observations before each step, and after the last.
        actions: (T, n, ...): the actions as the envs received them.
        rewards: (T, n) float64; (T, n, k) if the envs have vectors as rewards.
        terminations, truncations: (T, n) bool: whether the step ended its episode.
        final_obs: (T, n, ...) with same-step autoreset: the terminal observations in rows that end an episode; other
            rows are undefined. None with next-step autoreset, which has them in `obs`.
        extras: dict of (T + 1, n, ...): the columns of `PoolOptions.extras`, computed after the reset or step
            that returned `obs`. A `StepColumn` has (T, n, ...), like `rewards`.
        columns: dict of (T, n, ...): the columns that you passed to `act`, in memory of this process alone.
    """

    def __init__(self, parts: Sequence[SteppedEnvs], steps: int, columns: Declared) -> None:
        """Reserves the rollout's memory, and fills its first frame with the current observations of the envs.

        `parts`: consecutive parts without envs in flight.
        """
        self._parts, self._engine = parts, parts[0]._engine
        self.env_ids: np.ndarray[Any, np.dtype[np.int64]] = np.concatenate([part.env_ids for part in parts])
        self.steps, self.num_envs = steps, len(self.env_ids)
        self._columns = Columns(steps, self.num_envs, columns)
        self.columns: dict[str, np.ndarray[Any, Any]] = self._columns.arrays
        self._pickled: dict[int, RawRow] = {}  # the rows' values without columns
        self._source = self._engine.batches.source
        self._iterates = self._has_ended = False
        self._memory = self._reserve()
        self._take_views()
        self._observe()

    def _reserve(self) -> _core.RolloutViews:
        rows = self.num_envs * (self.steps + 1)
        if rows > _MOST_ROWS:
            raise MemoryError(
                f"expected a rollout of {_MOST_ROWS:,} rows at most, got {rows:,}: {self.steps:,} steps and the first "
                f"observations, of {self.num_envs} envs; {_REMEDY}"
            )
        what = f"a rollout of {self.steps} steps of {self.num_envs} envs"
        assert self._engine.hub is not None  # the pool is open, so it has a hub
        missing = self._engine.hub.bytes_for_rollout(rows)
        check_memory(missing, what=what, remedy=_REMEDY)
        if missing:  # the core frees the memory of unused rollouts, which must be unlocked before
            page_locks.unlock(self._engine.running.arena)
        try:
            return self._engine.hub.begin_rollout(self._parts[0]._part, len(self._parts), self.steps, self._pickled)
        except OSError as error:
            raise MemoryError(f"expected memory for {what}, got none ({error.strerror}); {_REMEDY}") from error

    def _take_views(self) -> None:
        layout, n = self._engine.layout, self.num_envs
        reward, terminated, truncated, self._mask, *leaves = self._framed(self._memory.columns())
        self.rewards, self.terminations, self.truncations = reward[1:], terminated[1:], truncated[1:]
        self._ends, self._leaves = (terminated, truncated), leaves
        self.obs: Any = layout.observation.build_batch(leaves, [])
        actions = [array[:-1] for array in self._framed(self._memory.actions())]
        self.actions: Any = layout.action.build_batch(actions, [])
        finals = [array[1:] for array in self._framed(self._memory.finals())]
        self.final_obs: Any = layout.observation.build_batch(finals, []) if finals else None
        computed = self._framed(self._memory.computed())
        self._num_state_columns = len(computed) - layout.step_columns
        own = [column[1:] if i >= self._num_state_columns else column for i, column in enumerate(computed)]
        self.extras: dict[str, np.ndarray[Any, Any]] = dict(zip(self._source.extras, own, strict=True))
        self._rows: Any = np.ogrid[: self.steps + 1, : self.num_envs]  # the index of all rows
        self._resets_between = layout.mode.in_next_step
        self._over = self._begun = np.zeros(n, np.bool_)

    def _framed(self, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Reshapes arrays with one row after another to (T + 1, n, ...)."""
        return [array.reshape(self.steps + 1, self.num_envs, *array.shape[1:]) for array in arrays]

    def _observe(self) -> None:
        """Fills the first frame with the current observations. If this raises, the rollout has ended."""
        try:
            for part in self._parts:
                self._engine.exchange.send(_core.Op.OBSERVE, part._ids, None, part._part, to_all=True)
            for part in self._parts:
                part._receive()
        except BaseException:
            for part in self._parts:
                self._end(part)
            raise
        ids = self.env_ids.tolist()
        self._over = np.array([self._engine.running.slots.needs_reset(env_id) for env_id in ids])
        begun = np.array([self._engine.running.slots.has_begun(env_id) for env_id in ids])
        self._begun = begun & ~self._ended_at(0, slice(None))

    # -- filling ---------------------------------------------------------------------------------------

    @holds_nothing
    def __iter__(self) -> Iterator[RolloutStep]:
        """Steps all envs together, T times. Each turn, a `RolloutStep`, has observations, and needs a call of `act`.

        If the rollout has parts, each part has T turns, and its envs step while you act for the others.

        Raises:
            StateError: The rollout was filled or iterated over before, a turn did not call `act`, or other code has
                stepped or reset the envs.
            Exception: Any error of `Pool.send` or `Pool.recv`. It ends the rollout.
        """
        return self._turns(_lockstep(self, self._parts))

    @holds_nothing
    def partial(self, min_envs: int) -> Iterator[RolloutStep]:
        """Steps each env T times, when it is ready. A turn, a `RolloutStep`, has all ready envs, at least `min_envs`.

        So no step waits for the slowest env. `step.env_ids` has the envs of a turn, and `step.rows` their place in the
        rollout.

        Args:
            min_envs: From 1 to n; with `vector_size` a multiple of it. The last turns may have fewer envs.

        Returns:
            An iterator over the turns.

        Raises:
            ValueError: `min_envs` is out of range.
            StateError, Exception: The rollout has parts (StateError); see also `__iter__`.
        """
        if type(min_envs) is not int or not 1 <= min_envs <= self.num_envs:
            raise ValueError(f"expected min_envs to be an int from 1 to {self.num_envs}, got {min_envs!r}")
        if len(self._parts) > 1:
            raise StateError("expected a rollout without parts, whose envs are received together")
        return self._turns(_partial_batches(self, self._parts[0], min_envs))

    def _turns(self, turns: Iterator[RolloutStep]) -> Iterator[RolloutStep]:
        if self._iterates or self._has_ended:
            raise StateError("expected a rollout that was just made, got one that was filled before: make another")
        self._iterates = True
        return RolloutSteps(turns)

    @property
    def is_open(self) -> bool:
        """Whether steps of the envs still go into the rollout."""
        if self._has_ended:
            return False
        # If a reset, another rollout or a division of the pool has ended this rollout, `next_frames` are above T + 1.
        return bool((~self._filled[-1] & (self._memory.next_frames() <= self.steps + 1)).any())

    def _obs_at(self, rows: Any) -> Any:
        """Returns the observations in these rows. `rows`: an index like `RolloutStep.rows`."""
        return self._engine.layout.observation.build_batch([leaf[rows] for leaf in self._leaves], [])

    def check_turn(self, frames: Any, columns: Any) -> None:
        """Raises StateError unless the next steps fill these rows. (frames, columns): a `RolloutStep.rows`."""
        if isinstance(columns, slice):
            is_next = self._memory.is_next(columns.start, columns.stop - columns.start, frames + 1)
        else:
            is_next = bool((self._memory.next_frames()[columns] == frames + 1).all())
        if not is_next:
            raise StateError(
                "expected no other step or reset of the envs of a rollout while it is iterated over, got one in this "
                "turn, or the rollout was closed, or another one was made; call close(), and make another"
            )

    @holds_nothing
    def close(self) -> None:
        """Ends the rollout before it is full. Waits for the steps in flight. Closing again does nothing.

        Rows that were not filled are not `valid`, and their rewards and flags are 0. A reset of the envs ends the
        rollout, too.

        Raises:
            Exception: Any error of `Pool.recv`. The rollout has ended nevertheless. Results still in flight are for the
                pool's next `recv`, and fill their rows; closing again waits for them.
        """
        self._has_ended = True
        for part in self._parts:
            self._end(part)
        for part in self._parts:
            if self._end(part):
                part.recv()

    def _end(self, part: SteppedEnvs) -> bool:
        """Ends the rollout for one part. Returns whether results of the part that belong to it are still in flight."""
        return self._engine.hub is not None and self._engine.hub.end_rollout(self._memory, part._part)

    def lay_out(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Creates a column of your own, filled with zeros, if it does not exist. `act` creates columns too.

        Args:
            name: Its key in `columns`.
            dtype, shape: Those of one env's entry at one step. The column keeps this dtype.
        """
        self._columns.declare(name, dtype, shape)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def _filled(self) -> Flags:
        """(T + 1, n) bool: whether a worker has filled the row."""
        return self._memory.is_filled().reshape(self.steps + 1, self.num_envs).astype(np.bool_)

    def _starts_at(self, rows: tuple[Any, Any]) -> Flags:
        """Returns the entries of `episode_starts` for some rows, which must be filled."""
        frames, columns = rows
        starts: Flags = self._ended_at(frames, columns)
        if self._resets_between:
            starts = ~starts & self._ended_at(np.maximum(frames, 1) - 1, columns)
        return np.where(np.equal(frames, 0), self._begun[columns], starts)

    def _ended_at(self, frames: Any, columns: Any) -> Flags:
        """Returns whether the env's episode was over after each of some rows, which must be filled."""
        # With next-step autoreset, the flags of frame 0 report episodes that were cut off since the env's last result.
        ended: Flags = self._ends[0][frames, columns] | self._ends[1][frames, columns]
        first = self._over[columns]
        return np.where(np.equal(frames, 0), first | ended if self._resets_between else first, ended)

    @property
    def valid(self) -> Flags:
        """(T, n) bool: whether the action was taken. False if next-step autoreset reset the env instead, or if the row
        was not filled. A copy."""
        filled = self._filled[1:]
        return filled & ~self._ended_at(*self._rows)[:-1] if self._resets_between else filled

    @property
    def episode_starts(self) -> Flags:
        """(T + 1, n) bool: whether `obs` is the first one of an episode. A copy."""
        return self._filled & self._starts_at(self._rows)

    @property
    def infos(self) -> dict[str, Any]:
        """The numbers in infos, in the format of Gymnasium's vector envs: for each key an array (T, n, ...), and under
        `_key` a bool array (T, n) that marks the infos with the key. Nested infos are nested dicts. Copies."""
        n = self.num_envs
        mask = np.where(self._filled, self._mask, np.uint64(0)).reshape(-1)[n:]
        arrays = [array[n:] for array in self._memory.infos()]
        return stack_rollout(
            self._source.info_reader, mask, arrays, self._rows_matter(), (self.steps, n), self._source.note_unpickling
        )

    @property
    def faults(self) -> dict[tuple[int, int], Fault]:
        """The faults that cut episodes off, with faults="restart", by (t, column) of the row that reports the fault."""
        return {divmod(row, self.num_envs): fault for row, fault in _faults_of(self._rows_matter())}

    @property
    def lost(self) -> tuple[Fault, ...]:
        """The faults that cut episodes off between the previous rollout and this one. The envs begin new episodes."""
        return tuple(fault for _, fault in _faults_of(self._rows_between(0, self.num_envs)))

    @holds_nothing
    def to(
        self, device: torch.device | str | int, non_blocking: bool = False, *, out: TensorRollout | None = None
    ) -> TensorRollout:
        """Returns the rollout as torch tensors: shared on the CPU, copied to a GPU while the program continues::

            tensors = rollout.to("cuda", non_blocking=True)
            loss = learn(tensors.obs[:-1].flatten(0, 1), ...)  # the current stream waits for the copy

        Each array is one copy, on a separate CUDA stream. The rollout's memory stays leased until the copies are done,
        so later rollouts are written elsewhere. See `Batch.to`. Infos stay in the rollout.

        Args:
            device, non_blocking: See `to_torch`.
            out: An earlier result of `to` for a rollout of the same form. Its tensors are overwritten and returned.

        Returns:
            Views on the CPU, which keep the rollout's memory leased while they are held; copies on other devices.

        Raises:
            StateError: The rollout is still being filled.
            Exception: Any error of `to_torch`.
        """
        from remuda._tensors.tensors import TensorRollout  # imported here because workers do not need it

        self._check_filled()
        return TensorRollout._of(self, device, non_blocking, out)

    def _check_filled(self) -> None:
        if self.is_open:
            raise StateError("expected a rollout that is full, got one that is still being filled; close() ends it")

    def _rows_matter(self) -> dict[int, RawRow]:
        """Returns the data without a column (objects, infos), by row. Row 0 is the first env's first step."""
        n = self.num_envs
        return {row - n: raw for row, raw in self._rows_between(n, n * (self.steps + 1)).items()}

    def _rows_between(self, first: int, end: int) -> dict[int, RawRow]:
        rows = self._pickled
        if self._source.vector_size is not None:
            rows = rows_of_envs(rows, self._source.vector_size)
        return {row: raw for row, raw in rows.items() if first <= row < end}

    def _arrays(self) -> list[np.ndarray[Any, Any]]:
        """Returns the rollout's arrays in shared memory. Each array is contiguous, with one frame after another."""
        memory = self._memory
        lists = memory.columns(), memory.finals(), memory.computed(), memory.actions(), memory.infos()
        return [array for arrays in lists for array in self._framed(arrays)]

    @holds_nothing
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"expected something that can be pickled or copied, got a rollout of {self.steps} steps of {self.num_envs} "
            "envs, which belongs to the pool that fills it; take its arrays (obs, actions, rewards, ...), which can"
        )

    def __len__(self) -> int:
        return self.steps

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Rollout of {self.steps} steps of {self.num_envs} envs, {state}>"


class RolloutStep:
    """One turn of a rollout, for the envs that act next.

    Attributes:
        obs: (k, ...), or a dict or tuple of such: their observations. A view of the rollout, except in `partial`.
        rows: Their place in the rollout: an index of its (T, n, ...) arrays, `rollout.columns["value"][step.rows]`.
    """

    def __init__(
        self, rollout: Rollout, part: SteppedEnvs, env_ids: np.ndarray[Any, Any] | None, rows: tuple[Any, Any]
    ) -> None:
        """`env_ids`: the envs of this turn; None for all envs of the part."""
        self._rollout, self._part, self._some = rollout, part, env_ids
        self.rows, self.obs = rows, rollout._obs_at(rows)
        self._has_acted = False

    @property
    def env_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """(k,) int64: the envs that act next."""
        return self._part.env_ids if self._some is None else self._some

    @property
    def extras(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns of `PoolOptions.extras` that belong to `obs`, by name: (k, ...). Without step columns."""
        columns = islice(self._rollout.extras.items(), self._rollout._num_state_columns)
        return {name: column[self.rows] for name, column in columns}

    def starts_episodes(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns (k,) bool: whether `obs` is the first observation of an episode."""
        return self._rollout._starts_at(self.rows)

    @holds_nothing
    def act(self, actions: Any, **columns: Any) -> None:
        """Sends the envs their actions, which the rollout keeps, and returns at once.

        Args:
            actions: One for each of `env_ids`; see `Pool.send`.
            **columns: Values to keep with the step: for each column k rows, as an array or an object that NumPy
                converts. A new column gets the dtype and shape of its first values. If later values need a wider dtype
                (floats after ints), a wider array replaces the column. A column that was declared in `Pool.rollout`
                keeps its dtype.

        Raises:
            ValueError: A column has another number of rows, or another shape than before; or its dtype would change
                values by more than the precision of floats. Nothing was sent.
            StateError: These envs have already acted in this turn; or other code has stepped or reset them in it, begun
                another rollout of them, or closed this one.
            Exception: Any error of `Pool.send`. Nothing was sent.
        """
        if self._has_acted:
            raise StateError("expected one act() in each turn of a rollout, got another one")
        rollout = self._rollout
        rollout.check_turn(*self.rows)
        checked = []
        for name, value in columns.items():  # no comprehension: in a traceback, its frame would keep the rollout
            checked.append((name, *rollout._columns.check(name, value, len(self.env_ids))))
        self._part.send(actions, self._some)
        self._has_acted = True
        for name, column, values in checked:
            column[self.rows] = values
            rollout.columns[name] = column

    def check_acted(self) -> None:
        """Raises StateError if `act` was not called in this turn."""
        if not self._has_acted:
            raise StateError(
                "expected step.act(actions) in each turn of a rollout, got a turn without: call close() to end it"
            )


class RolloutSteps(Iterator[RolloutStep]):
    """The turns of a rollout, one after another. An exception from a turn does not keep the rollout alive."""

    def __init__(self, turns: Iterator[RolloutStep]) -> None:
        self._turns = turns

    @holds_nothing
    def __next__(self) -> RolloutStep:
        return next(self._turns)


def _faults_of(rows: Mapping[int, RawRow]) -> Iterator[tuple[int, Fault]]:
    """Yields (row, fault) for each fault that a row reports."""
    for row, (_, parts, terminal) in rows.items():
        for made in (parts, terminal, parts.end if isinstance(parts, MadeRow) else None):
            if isinstance(made, (MadeRow, MadeEnd)) and isinstance(fault := made.info.get("fault"), Fault):
                yield row, fault


def _lockstep(rollout: Rollout, parts: Sequence[SteppedEnvs]) -> Iterator[RolloutStep]:
    """Yields turns in which all envs of a part act. Meanwhile the envs of the other parts step."""
    ends = np.cumsum([part.num_envs for part in parts]).tolist()
    slices = [slice(end - part.num_envs, end) for part, end in zip(parts, ends, strict=True)]
    for t in range(rollout.steps):
        for part, columns in zip(parts, slices, strict=True):
            if t:
                part.recv()
            step = RolloutStep(rollout, part, None, (t, columns))
            yield step
            step.check_acted()
    for part in parts:
        part.recv()
    rollout._has_ended = True


def _partial_batches(rollout: Rollout, part: SteppedEnvs, min_envs: int) -> Iterator[RolloutStep]:
    """Yields turns for the envs that are ready, until each has acted once for each step of the rollout."""
    clocks, ready = np.zeros(rollout.num_envs, np.int64), np.arange(rollout.num_envs)
    while True:
        if len(ready):
            step = RolloutStep(rollout, part, rollout.env_ids[ready], (clocks[ready], ready))
            yield step
            step.check_acted()
            clocks[ready] += 1
        if not part.pending:
            break
        arrived = np.searchsorted(rollout.env_ids, part.recv(min_envs).env_ids)
        ready = arrived[clocks[arrived] < rollout.steps]
    rollout._has_ended = True
