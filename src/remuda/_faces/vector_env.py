"""The base of faces that are vector envs: records which call is pending, and splits the envs into parts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar
from weakref import WeakSet

import numpy.typing as npt
from gymnasium.vector.async_vector_env import AsyncState

from remuda import EnvTimeoutError
from remuda._faces.pool_beneath import HasStats, drop_pending
from remuda._faces.translation import in_words_of
from remuda.errors import InvalidActionError, StateError

if TYPE_CHECKING:
    from remuda import ColumnType, Part, Pool, Rollout

Indices: TypeAlias = int | Iterable[int] | None

T = TypeVar("T")
V = TypeVar("V", bound="PooledVectorEnv")

# Every step compares these states. They are constants because, before Python 3.12, looking up a member of an enum takes
# as long as making an array.
IDLE, STEPPING = AsyncState.DEFAULT, AsyncState.WAITING_STEP


class PooledVectorEnv(HasStats):
    """Some or all envs of a pool, which are reset, stepped and called together, one call at a time.

    An ``*_async`` method sends the call, its ``*_wait`` method receives the results.

    Attributes:
        env_ids: (n,) int64, ascending: the ids of these envs in the pool.
        extras: The columns of ``extras=``, by name, of the latest reset or step: views, like observations.
        closed: Whether it was closed.
        _words: The face's words for options and values of the pool, for `in_words_of`.
        _pool: The whole pool.
        _envs: The envs that are reset, stepped and called: the pool, or a part of it.
        _state: The call that awaits its ``*_wait``; `IDLE`: none.
        _late: The call that timed out and may be awaited again; `IDLE`: none.
        _has_leftovers: Whether results may be in flight that no ``*_wait`` will receive.
        _steps_at_once: Whether `step` may send and receive in one call, because no subclass overrides `step_async` or
            `step_wait`.
    """

    _words: ClassVar[Mapping[str, str]] = {}
    _envs: Part
    closed = True  # until `_begin`: Gymnasium before 1.4 closes an open vector env even if its constructor has failed
    _steps_at_once = True
    _shares: tuple[Part, ...] = ()  # the parts of the latest `split`

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        owners = [next(kind for kind in cls.__mro__ if name in vars(kind)) for name in ("step_async", "step_wait")]
        cls._steps_at_once = all(owner.__module__.startswith("remuda.") for owner in owners)

    def _begin(self, pool: Pool, envs: Part) -> None:
        """Initializes the vector env, with no call pending."""
        self._pool, self._envs, self.env_ids = pool, envs, envs.env_ids
        self.closed = False
        self.extras: dict[str, npt.NDArray[Any]] = {}
        self._split_off: WeakSet[Any] = WeakSet()
        self._settle()

    @property
    def pool(self) -> Part:
        """The :class:`remuda.Pool` of these envs; in a part of a vector env, its :class:`remuda.Part`.

        Use it for states, :func:`remuda.evaluate` and traces. Its calls change the envs of this vector env, which does
        not receive their results. Close the vector env, not the pool.
        """
        return self._envs

    @property
    def processes(self) -> list[Any]:
        """The workers of these envs; each has ``name``, ``pid``, ``exitcode``, ``is_alive()`` and ``env_ids``.

        A part may share them with other parts.
        """
        workers = self._pool.workers
        if self._envs is self._pool:
            return list(workers)
        ids = set(self.env_ids.tolist())
        return [worker for worker in workers if not ids.isdisjoint(worker.env_ids)]

    def _positions(self, indices: Indices) -> list[int]:
        """Returns the envs that `indices` selects. ``None`` selects all envs, -1 the last one. An env may occur twice.

        Raises:
            IndexError: there is no such env.
        """
        every = range(len(self.env_ids))
        if indices is None:
            return list(every)
        ints = [operator.index(index) for index in (indices if isinstance(indices, Iterable) else [indices])]
        if unknown := [index for index in ints if not -len(every) <= index < len(every)]:
            raise IndexError(f"expected indices of {len(every)} envs, got {unknown[0]}")
        return [every[index] for index in ints]

    # -- the pending call --------------------------------------------------------------------------------

    def _wait(self, call: AsyncState, receive: Callable[[float | None], T], timeout: float | None) -> T:
        """Receives the results of a call that is pending or has timed out. Afterwards, no call is pending.

        After an interruption, such as Ctrl-C, the call stays pending. A second wait receives the results, or raises
        StateError if the interruption came after the pool had returned them. A reset is possible in both cases.
        """
        try:
            got = receive(timeout)
        except Exception as error:
            # an EnvTimeoutError is a TimeoutError too, but an env missed its deadline: the wait itself did not time out
            is_late = isinstance(error, TimeoutError) and not isinstance(error, EnvTimeoutError)
            self._settle(late=call if is_late else IDLE, has_leftovers=True)
            raise
        # Does the same as `_settle()`, inlined because every step ends here.
        self._state, self._late, self._has_leftovers = IDLE, IDLE, False
        return got

    def _settle(self, late: AsyncState = IDLE, *, has_leftovers: bool = False) -> None:
        """Marks that no call is pending. `late`: a call that timed out, and can still be awaited."""
        self._state, self._late, self._has_leftovers = IDLE, late, has_leftovers

    def _note_failed_step(self, error: BaseException) -> None:
        """Notes what is left in flight by a `step` that raised, which sends and receives in one call."""
        if not isinstance(error, Exception):  # an interruption, such as Ctrl-C: `step_wait` can receive the results
            self._state = STEPPING if self._envs.pending else IDLE
        elif not isinstance(error, (InvalidActionError, StateError)):  # for which nothing was sent
            self._settle(has_leftovers=True)

    def _drop_leftovers(self) -> None:
        """If no call is pending, waits for the results that an earlier call left in flight, and drops them."""
        if self._has_leftovers and self._state is IDLE:
            self._discard()

    def _make_way_for(self, method: str) -> None:
        """Drops what an earlier call left in flight. Raises the face's error if it is closed or a call is pending.

        `method`: the called method, for the error.
        """
        self._check_open()
        self._check_idle(method)
        self._drop_leftovers()

    def _make_way_for_reset(self) -> None:
        """Drops all results in flight, such as the rest of a rollout. Raises StateError if the envs are split."""
        if self._is_split:
            raise StateError(
                "the vector env has been split: use what the latest split() returned, or make it whole with split(1)"
            )
        self._discard()

    def _discard(self) -> None:
        """Drops all results in flight, faults included. If the envs are split, their parts drop them instead."""
        if not self._is_split:
            drop_pending(self._envs)
        self._settle()

    # -- parts -------------------------------------------------------------------------------------------

    @property
    def _is_split(self) -> bool:
        return len(self._shares) > 1

    def split(self, parts: int = 2) -> tuple[Any, ...]:
        """Divide the envs, to step some while a policy computes actions for the others ("double buffering").

        Afterwards only the parts can be reset and stepped. Calls on this vector env still reach all envs, and
        :meth:`close` closes the parts too. The parts of an earlier split can no longer be used. ``split(1)`` makes this
        vector env whole again.

        Args:
            parts: the number of parts.

        Returns:
            A vector env for each part, with an equal share of every worker's envs; ``env_ids`` lists these envs.

        Raises:
            ValueError: ``parts`` is not from 1 to the number of envs (with ``vector_size``: of vector envs), or this
                is a part itself.
            ClosedEnvironmentError, remuda.ClosedError: in Gymnasium's and in SB3's face: after :meth:`close`.
            AlreadyPendingCallError, remuda.StateError: in Gymnasium's and in SB3's face: a call of this vector env, or
                of a part, is pending.
        """
        raise ValueError(f"expected the whole to be split, got a part of it: use whole.split(...), not {parts} of this")

    def _split(self, parts: int, make: Callable[[Part], V]) -> tuple[V, ...]:
        """Divides the pool, and returns a vector env for each part; an empty tuple if there is only one part."""
        self._check_open()
        for envs in (self, *self._split_off):
            envs._check_idle("split")
        drop_pending(self._pool)  # a call timed out or was interrupted, or a part is gone
        self._shares = self._pool.split(parts)
        self._settle()
        if not self._is_split:
            return ()
        made = tuple(make(share) for share in self._shares)
        self._split_off.update(made)
        return made

    def _check_open(self) -> None:
        """Does nothing. A face overrides it to raise its own error if the vector env is closed."""

    def _check_idle(self, method: str) -> None:
        """Raises the face's error if a call is pending. `method`: the called method, for the error."""
        raise NotImplementedError

    # -- rollouts ----------------------------------------------------------------------------------------

    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Collect the next ``steps`` steps of each env in the memory that a learner reads; see
        :meth:`remuda.Pool.rollout`.

        Every :meth:`step` is recorded too, until the rollout is full or the envs are reset.

        Args:
            steps: the number of steps of each env, from 1 up.
            columns: further columns: for each name a dtype or (dtype, shape).
            parts: the number of parts to step the envs in, each while the policy computes actions for the others. More
                than one: the envs stay divided until the next :meth:`reset`.

        Returns:
            A :class:`remuda.Rollout` to iterate over, with the names of :class:`remuda.Pool`.

        Raises:
            ClosedEnvironmentError, remuda.ClosedError: in Gymnasium's and in SB3's face: after :meth:`close`.
            AlreadyPendingCallError, remuda.StateError: in Gymnasium's and in SB3's face: a call is pending.
            remuda.StateError: a RuntimeError: an env must be reset first.
            ValueError, TypeError: an argument is wrong, a space has parts without a column, or autoreset is disabled.
            MemoryError: there is not enough memory.
            Exception: raised as by :meth:`step`: an env raised, or a worker died, before the observations were
                complete.
        """
        self._make_way_for("rollout")
        with in_words_of(self._words):
            return self._envs.rollout(steps, columns, parts)

    # -- closing -----------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Marks the vector env as closed, and copies its views of shared memory, so that the memory can be freed.

        Its parts are closed, too.
        """
        for part in self._split_off:
            part._let_go()
        self.closed = True
        self._settle()
        self.extras = deepcopy(self.extras)
