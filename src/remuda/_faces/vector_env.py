"""Vector envs on a pool or a part of one: the call that is pending, and the parts that `split` makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakSet

import numpy.typing as npt
from gymnasium.vector.async_vector_env import AsyncState

from remuda import EnvTimeoutError
from remuda._faces.stats import HasStats
from remuda._faces.translation import Translation
from remuda.errors import RemudaError, StateError

if TYPE_CHECKING:
    from remuda import ColumnType, Part, Pool, Rollout

T = TypeVar("T")
V = TypeVar("V", bound="PooledVectorEnv")
M = TypeVar("M", bound=Callable[..., Any])

# Names of our own for what every step compares: until Python 3.12 looking up a member of an enum takes as long as
# making an array.
IDLE, STEPPING = AsyncState.DEFAULT, AsyncState.WAITING_STEP


def translated_by_face(method: M) -> M:
    """A decorator of methods of the kit, which raise the face's errors instead of the engine's."""

    @functools.wraps(method)
    def translating(self: PooledVectorEnv, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except RemudaError as error:
            self._translation.raise_for(error)

    return translating  # type: ignore[return-value]  # it has the method's signature


class PooledVectorEnv(HasStats):
    """Some or all envs of a pool, which are reset, stepped and called together, one call at a time.

    An ``*_async`` method sends the call, its ``*_wait`` method receives the results.

    Attributes:
        env_ids: (n,) int64, ascending: which envs of the pool these are.
        extras: The columns of ``extras=``, by name, of the latest reset or step: views, as observations are.
        closed: Whether it was closed.
        _translation: Makes the face's errors of the engine's.
        _pool: The whole pool.
        _envs: What is reset, stepped and called: the pool, or a part of it.
        _state: The call that awaits its ``*_wait``; `IDLE`: none.
        _late: The call that timed out and may be awaited again; `IDLE`: none.
        _has_leftovers: Results that no ``*_wait`` will take may be in flight.
        _steps_at_once: Whether `step` may send and receive in one call, because no subclass has a `step_async` or
            `step_wait` of its own.
    """

    _translation: ClassVar[Translation]
    _envs: Part
    _steps_at_once = True
    _shares: tuple[Part, ...] = ()  # what `split` has divided the envs into

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        faces = [kind for kind in cls.__mro__ if issubclass(kind, PooledVectorEnv) and "step_async" in vars(kind)]
        names = ("step_async", "step_wait")
        cls._steps_at_once = all(getattr(cls, name) is getattr(faces[-1], name) for name in names)

    def _begin(self, pool: Pool, envs: Part) -> None:
        """Begins with no call pending."""
        self._pool, self._envs, self.env_ids = pool, envs, envs.env_ids
        self.closed = False
        self.extras: dict[str, npt.NDArray[Any]] = {}
        self._split_off: WeakSet[Any] = WeakSet()
        self._settle()

    @property
    def pool(self) -> Part:
        """The envs as :class:`remuda.Pool` has them, or as :class:`remuda.Part` those of a half.

        It is for states, :func:`remuda.evaluate` and traces. The envs continue from the state in which its calls leave
        them; it alone receives the results of its calls. Close this, and not the pool.
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

    # -- the pending call --------------------------------------------------------------------------------

    def _wait(self, call: AsyncState, receive: Callable[[float | None], T], timeout: float | None) -> T:
        """Returns ``receive(timeout)`` for the call that is pending or late; afterwards no call is pending.

        After an interruption, such as Ctrl-C, the call is still pending, and may be awaited again.
        """
        try:
            got = receive(timeout)
        except EnvTimeoutError:  # a TimeoutError, but not that of waiting
            self._settle(has_leftovers=True)
            raise
        except TimeoutError:
            self._settle(late=call, has_leftovers=True)
            raise
        except Exception:
            self._settle(has_leftovers=True)
            raise
        # Does the same as `_settle`, without a call: every step ends here.
        self._state, self._late, self._has_leftovers = IDLE, IDLE, False
        return got

    def _settle(self, late: AsyncState = IDLE, *, has_leftovers: bool = False) -> None:
        """Ends the pending call."""
        self._state, self._late, self._has_leftovers = IDLE, late, has_leftovers

    def _drop_leftovers(self) -> None:
        """Waits for what an earlier call has left in flight and drops it, unless a call is pending."""
        if self._has_leftovers and self._state is IDLE:
            self._discard()

    def _make_way_for_reset(self) -> None:
        """Drops whatever is in flight, such as the rest of a rollout. Raises StateError if the envs are split."""
        if self._is_split:
            raise StateError(
                "the vector env has been split: use what the latest split() returned, or make it whole with split(1)"
            )
        self._discard()

    def _discard(self) -> None:
        """Drops what is in flight, faults included, but not that of parts, which do so themselves."""
        if not self._is_split and self._envs.pending:
            self._envs.discard()
        self._settle()

    # -- parts -------------------------------------------------------------------------------------------

    @property
    def _is_split(self) -> bool:
        return len(self._shares) > 1

    def split(self, parts: int = 2) -> tuple[Any, ...]:
        """Divide the envs, to step some while a policy computes actions for the others ("double buffering").

        From then on only the parts are reset and stepped; calls reach all envs as before, and :meth:`close` closes the
        parts too. The parts of an earlier split can no longer be used. ``split(1)`` makes this vector env whole again.

        Args:
            parts: how many.

        Returns:
            Vector envs of their own, each with an equal share of every worker's envs. Their ``env_ids`` are those envs.

        Raises:
            ValueError: ``parts`` is not from 1 to the number of envs, or of vector envs with ``vector_size``; or this
                is a part itself.
            ClosedEnvironmentError, remuda.ClosedError: in Gymnasium's and in SB3's face: after :meth:`close`.
            AlreadyPendingCallError, remuda.StateError: in Gymnasium's and in SB3's face: a call of this, or of a part,
                is pending.
        """
        raise ValueError(f"expected the whole to be split, got a part of it: use whole.split(...), not {parts} of this")

    @translated_by_face
    def _split(self, parts: int, make: Callable[[Part], V]) -> tuple[V, ...]:
        """Divides the pool and returns a vector env for each share of it; an empty tuple if the whole is one share."""
        self._check_open()
        for envs in (self, *self._split_off):
            envs._check_idle("split")
        if self._pool.pending:  # results that timed out, were interrupted, or belong to a part that was dropped
            self._pool.discard()
        self._shares = self._pool.split(parts)
        self._settle()
        if not self._is_split:
            return ()
        made = tuple(make(share) for share in self._shares)
        self._split_off.update(made)
        return made

    def _check_open(self) -> None:
        """Raises the face's error if it is closed and that error is not the pool's."""

    def _check_idle(self, method: str) -> None:
        """Raises the face's error if a call is pending, during which the method cannot be called."""
        raise NotImplementedError

    # -- rollouts ----------------------------------------------------------------------------------------

    @translated_by_face
    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Have the next ``steps`` steps written where a learner reads them; as :meth:`remuda.Pool.rollout`.

        Every :meth:`step` goes there too, until the rollout is full or the envs are reset.

        Args:
            steps: from 1 up.
            columns: further columns: their names, and for each a dtype or (dtype, shape).
            parts: step the envs in so many parts, each while the policy computes actions for the others.

        Returns:
            A :class:`remuda.Rollout`, to be iterated over. Its names are those of the pool.

        Raises:
            ClosedEnvironmentError, remuda.ClosedError: in Gymnasium's and in SB3's face: after :meth:`close`.
            AlreadyPendingCallError, remuda.StateError: in Gymnasium's and in SB3's face: a call is pending.
            remuda.StateError: a RuntimeError: an env must be reset first.
            ValueError, TypeError: bad arguments, a space with parts that have no column, or an autoreset mode that is
                disabled.
            MemoryError: there is not that much memory.
            Exception: as of :meth:`step`: an env raised, or a worker died, before the observations were complete.
        """
        self._check_open()
        self._check_idle("rollout")
        self._drop_leftovers()
        return self._envs.rollout(steps, columns, parts)

    # -- closing -----------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """Marks it as closed. Copies what shared memory it holds, which ends with the last view of it."""
        self.closed = True
        self._settle()
        self.extras = deepcopy(self.extras)
