"""Rollouts: T steps of n envs, which the workers write where the learner reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from remuda import _core
from remuda._engine.commands.partition import Division
from remuda._engine.rollouts.advantages import HasAdvantages
from remuda._engine.rollouts.columns import Columns, Declared
from remuda._engine.rollouts.steps import RolloutStep, SteppedEnvs, Turns
from remuda._engine.running.infos import RawRow, rows_of_envs, stack_rollout
from remuda._error_frames import holds_nothing
from remuda._spellings import InSingular
from remuda._system.memory import check_memory
from remuda._tensors import page_locks
from remuda.errors import Fault, StateError

if TYPE_CHECKING:
    import torch

    from remuda._tensors.tensors import TensorRollout

Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_MOST_ROWS = (1 << 32) - 1  # the core counts them in 32 bits
_REMEDY = "use fewer steps, or let go of rollouts (and of arrays of them) that you still hold"


class Rollout(HasAdvantages, InSingular):
    """T steps of n envs in one piece of memory, which the workers fill in place: what `Pool.rollout` makes::

        rollout = pool.rollout(128)
        for step in rollout:  # 128 times
            values, actions = model(step.obs)
            step.act(actions, value=values)
        rollout.obs, rollout.actions, rollout.rewards, rollout.columns["value"]

    Arrays are views of the pool's shared memory: they are yours for as long as you keep them, or any view of them, or
    the rollout, and nothing is copied. You may write to them. Rows that are not `valid` mean nothing to a learner.
    Names in the singular, as batches have them (`reward`, `terminated`), work too.

    Attributes:
        steps: T.
        num_envs: n.
        env_ids: (n,) int64: whose the n columns are.
        obs: (T + 1, n, ...), or a dict or tuple of such: what the envs showed before each step, and after the last.
        actions: (T, n, ...): what they were sent, as they got it.
        rewards: (T, n) float64.
        terminations, truncations: (T, n) bool: whether the step ended its episode.
        final_obs: (T, n, ...) with same-step autoreset: the terminal observations where an episode has ended, and
            anything elsewhere. None with next-step autoreset, where they are in `obs`.
        extras: dict of (T + 1, n, ...): the columns of `PoolOptions.extras`, of the moments of `obs`.
        columns: dict of (T, n, ...): what you have given to `act` besides. These are memory of this process alone.
    """

    def __init__(self, parts: Sequence[SteppedEnvs], steps: int, columns: Declared, division: Division) -> None:
        """Reserves the memory, and fills the first frame with the envs' current observations.

        `parts`: their envs are neighbours, and none is in flight. `division`: the one that made these parts.
        """
        self._division = division
        self._parts, self._first, self._engine = parts, parts[0]._part, parts[0]._engine
        self.env_ids: np.ndarray[Any, np.dtype[np.int64]] = np.concatenate([part.env_ids for part in parts])
        self.steps, self.num_envs = steps, len(self.env_ids)
        self._columns = Columns(steps, self.num_envs, columns)
        self.columns: dict[str, np.ndarray[Any, Any]] = self._columns.arrays
        self._pickled: dict[int, RawRow] = {}  # by row
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
        assert self._engine.hub is not None  # the pool is open
        missing = self._engine.hub.bytes_for_rollout(rows)
        check_memory(missing, what=what, remedy=_REMEDY)
        if missing:  # what is not held is given back first
            page_locks.unlock(self._engine.running.arena)
        try:
            return self._engine.hub.begin_rollout(self._first, len(self._parts), self.steps, self._pickled)
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
        self.extras: dict[str, np.ndarray[Any, Any]] = dict(zip(self._source.extras, computed, strict=True))
        self._resets_between = layout.mode.in_next_step
        self._over = self._begun = np.zeros(n, np.bool_)

    def _framed(self, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Returns arrays of rows as arrays of frames."""
        return [array.reshape(self.steps + 1, self.num_envs, *array.shape[1:]) for array in arrays]

    def _observe(self) -> None:
        """Fills the first frame. If this raises, the rollout has ended."""
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
        self._begun = np.array([self._engine.running.slots.has_begun(env_id) for env_id in ids]) & ~self._dones[0]

    # -- filling ---------------------------------------------------------------------------------------

    @holds_nothing
    def __iter__(self) -> Iterator[RolloutStep]:
        """Steps all envs together, T times: each turn has the observations, and waits for `step.act(actions)`.

        Where the rollout has parts, each has T turns, and steps while you deal with the others.

        Raises:
            StateError: It was filled, or iterated over, before; a turn without `act`; or somebody else has stepped or
                reset the envs.
            Exception: What `Pool.send` and `Pool.recv` raise. The rollout has ended then.
        """
        return self._turns(_lockstep(self, self._parts))

    @holds_nothing
    def partial(self, min_envs: int) -> Iterator[RolloutStep]:
        """Steps each env T times, whenever it is ready: a turn has the envs that are, `min_envs` of them or more.

        So nobody waits for the slowest env in each step. `step.env_ids` says which envs a turn has, `step.rows` where
        they are in the rollout.

        Args:
            min_envs: From 1 to n, a multiple of `vector_size` where there is one. Towards the end there are fewer.

        Returns:
            An iterator over the turns.

        Raises:
            ValueError: Another number.
            StateError, Exception: As when it is iterated over.
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
        return Turns(turns)

    @property
    def is_open(self) -> bool:
        """Whether steps of its envs still go into it."""
        if self._has_ended:
            return False
        # A reset, another rollout, or another division of the pool has moved the next frame past the end.
        return bool((~self._filled[-1] & (self._memory.next_frames() <= self.steps + 1)).any())

    def _obs_at(self, rows: Any) -> Any:
        """Returns the observations of these rows: `RolloutStep.rows`."""
        return self._engine.layout.observation.build_batch([leaf[rows] for leaf in self._leaves], [])

    def check_turn(self, frames: Any, columns: Any) -> None:
        """Raises StateError unless the next commands of envs belong into (`frames`, `columns`): `RolloutStep.rows`."""
        if isinstance(columns, slice):
            is_next = self._memory.is_next(columns.start, columns.stop - columns.start, frames + 1)
        else:
            is_next = bool((self._memory.next_frames()[columns] == frames + 1).all())
        if not is_next:
            raise StateError(
                "expected nobody else to step or reset the envs of a rollout while it is iterated over, got a turn in "
                "which they were, or the rollout was closed, or another one was made; call close(), and make another"
            )

    @holds_nothing
    def close(self) -> None:
        """Ends it before it is full, with what is in flight. Closing again does nothing.

        What was not filled is not `valid`, and its rewards and flags are 0. A reset of its envs ends it, too.

        Raises:
            Exception: What `Pool.recv` raises. It has ended all the same. What is still in flight is for the pool's
                next `recv`, and fills its rows; closing again waits for it.
        """
        self._has_ended = True
        for part in self._parts:
            self._end(part)
        for part in self._parts:
            if self._end(part):
                part.recv()
        self._rejoin()

    def _end(self, part: SteppedEnvs) -> bool:
        """Has no further steps of the part go into it. Returns whether results that fill it are still to come."""
        return self._engine.hub is not None and self._engine.hub.end_rollout(part._part, self._memory)

    def _complete(self) -> None:
        """Ends the full rollout."""
        self._has_ended = True
        self._rejoin()

    def _rejoin(self) -> None:
        """Makes the pool whole again, if it is still divided for the rollout."""
        pool = self._parts[0]._pool
        if pool is not None and len(self._parts) > 1:
            pool._join(self._first)

    def lay_out(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Makes room for a column of your own, zeros, unless it is there. `act` does so by itself.

        Args:
            name: Its key in `columns`.
            dtype, shape: Of one env's entry at one step. The column keeps this dtype.
        """
        self._columns.declare(name, dtype, shape)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def _filled(self) -> Flags:
        """(T + 1, n): by frame."""
        return self._memory.is_filled().reshape(self.steps + 1, self.num_envs).astype(np.bool_)

    @property
    def _dones(self) -> Flags:
        """(T + 1, n): whether the episode was over after frame t."""
        dones: Flags = self._filled & (self._ends[0] | self._ends[1])
        # With next-step autoreset frame 0 has the end of an episode that was cut off since its last result.
        dones[0] = self._over | dones[0] if self._resets_between else self._over
        return dones

    def _starts_at(self, rows: tuple[Any, Any]) -> Flags:
        """Returns `episode_starts` for some filled rows only."""
        frames, columns = rows
        starts: Flags = self._ended_at(frames, columns)
        if self._resets_between:
            starts = ~starts & self._ended_at(np.maximum(frames, 1) - 1, columns)
        return np.where(np.equal(frames, 0), self._begun[columns], starts)

    def _ended_at(self, frames: Any, columns: Any) -> Flags:
        """Returns `_dones` for some filled rows only."""
        ended: Flags = self._ends[0][frames, columns] | self._ends[1][frames, columns]
        first = self._over[columns]
        return np.where(np.equal(frames, 0), first | ended if self._resets_between else first, ended)

    @property
    def valid(self) -> Flags:
        """(T, n) bool: whether the action was taken. It is not where next-step autoreset has reset an env instead, nor
        where nothing was filled. A copy."""
        filled = self._filled[1:]
        return filled & ~self._dones[:-1] if self._resets_between else filled

    @property
    def episode_starts(self) -> Flags:
        """(T + 1, n) bool: whether `obs` is the first one of an episode. A copy."""
        filled, dones = self._filled, self._dones
        starts = np.zeros_like(dones)
        starts[0] = self._begun
        starts[1:] = dones[:-1] & ~dones[1:] if self._resets_between else dones[1:]
        return starts & filled

    @property
    def infos(self) -> dict[str, Any]:
        """The numbers in the envs' infos, as Gymnasium's vector envs have them: for each key an array (T, n, ...), and
        under `_key` a bool array (T, n): where there is one. Dicts in infos are dicts of such. Copies."""
        n = self.num_envs
        mask = np.where(self._filled, self._mask, np.uint64(0)).reshape(-1)[n:]
        arrays = [array[n:] for array in self._memory.infos()]
        return stack_rollout(
            self._source.info_reader, mask, arrays, self._rows_matter(), (self.steps, n), self._source.meter
        )

    @property
    def faults(self) -> dict[tuple[int, int], Fault]:
        """The faults that have cut episodes off, if faults are restarted: by (t, column) of the row that reports it."""
        return {divmod(row, self.num_envs): fault for row, fault in _faults_of(self._rows_matter())}

    @property
    def lost(self) -> tuple[Fault, ...]:
        """The faults that have cut episodes off since the previous rollout: these envs begin a new episode."""
        return tuple(fault for _, fault in _faults_of(self._rows_between(0, self.num_envs)))

    @holds_nothing
    def to(
        self, device: torch.device | str | int, non_blocking: bool = False, *, out: TensorRollout | None = None
    ) -> TensorRollout:
        """The rollout as torch tensors: shared on the CPU, copied to a GPU while the program continues::

            tensors = rollout.to("cuda", non_blocking=True)
            loss = learn(tensors.obs[:-1].flatten(0, 1), ...)  # the current stream waits for the copy

        Each array is one copy, on a stream of their own. Their memory stays leased until that is done, so the rollouts
        that follow are written elsewhere. `Batch.to` says more. What `infos` has stays in the rollout.

        Args:
            device: Where the tensors are to be. "cuda" is the current CUDA device.
            non_blocking: Return before copies to a CUDA device are done. Otherwise the call waits for them.
            out: What `to` has returned for a rollout of the same form: its tensors are written to, and returned.

        Returns:
            On the CPU views: for as long as they are held, so is the rollout's memory. Else copies.

        Raises:
            StateError: It is still being filled.
            MissingFrameworkError: torch is not installed.
            TypeError: torch has no such dtype.
            ValueError: The tensors of `out` have other shapes, dtypes or another device. Nothing was written.
        """
        from remuda._tensors.tensors import TensorRollout  # workers have no need of it

        self._check_filled()
        return TensorRollout._of(self, device, non_blocking, out)

    def _check_filled(self) -> None:
        if self.is_open:
            raise StateError("expected a rollout that is full, got one that is still being filled; close() ends it")

    def _rows_matter(self) -> dict[int, RawRow]:
        """Returns the rows with matter that has no column, counted from the first step's on."""
        n = self.num_envs
        return {row - n: raw for row, raw in self._rows_between(n, n * (self.steps + 1)).items()}

    def _rows_between(self, first: int, end: int) -> dict[int, RawRow]:
        rows = self._pickled
        if self._source.vector_size is not None:
            rows = rows_of_envs(rows, self._source.vector_size)
        return {row: raw for row, raw in rows.items() if first <= row < end}

    def _arrays(self) -> list[np.ndarray[Any, Any]]:
        """Returns all arrays in the pool's shared memory, frame after frame: each is contiguous."""
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


def _faults_of(rows: Mapping[int, RawRow]) -> Iterator[tuple[int, Fault]]:
    """Yields the faults that rows report, each with its row."""
    for row, (_, parts, terminal) in rows.items():
        for made in (parts, terminal, parts[3] if isinstance(parts, tuple) and len(parts) == 4 else None):
            info = made[1] if isinstance(made, tuple) and len(made) > 1 else None
            if isinstance(info, dict) and isinstance(fault := info.get("fault"), Fault):
                yield row, fault


def _lockstep(rollout: Rollout, parts: Sequence[SteppedEnvs]) -> Iterator[RolloutStep]:
    """Yields turns in which all envs of a part act. While one part acts, the envs of the others step."""
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
    rollout._complete()


def _partial_batches(rollout: Rollout, part: SteppedEnvs, min_envs: int) -> Iterator[RolloutStep]:
    """Yields turns in which those envs act that are ready, each as often as the rollout has steps."""
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
    rollout._complete()
