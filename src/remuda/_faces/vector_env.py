"""Vector envs on a pool or a part of one: the call that is pending, and the parts that `split` makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from gymnasium.vector.async_vector_env import AsyncState

from remuda import EnvTimeoutError
from remuda._faces.stats import HasStats
from remuda.errors import StateError

if TYPE_CHECKING:
    from remuda import Part, Pool

T = TypeVar("T")
V = TypeVar("V", bound="PooledVectorEnv")

# Names of our own for what every step compares: until Python 3.12 looking up a member of an enum takes as long as
# making an array.
IDLE, STEPPING = AsyncState.DEFAULT, AsyncState.WAITING_STEP


class PooledVectorEnv(HasStats):
    """Some or all envs of a pool, which are reset, stepped and called together, one call at a time.

    An ``*_async`` method sends the call, its ``*_wait`` method receives the results.

    Attributes:
        env_ids: (n,) int64, ascending: which envs of the pool these are.
        _pool: The whole pool.
        _envs: What is reset, stepped and called: the pool, or a part of it.
        _state: The call that awaits its ``*_wait``; `IDLE`: none.
        _late: The call that timed out and may be awaited again; `IDLE`: none.
        _has_leftovers: Results that no ``*_wait`` will take may be in flight.
        _steps_at_once: Whether `step` may send and receive in one call, because no subclass has a `step_async` or
            `step_wait` of its own.
    """

    _envs: Part
    _steps_at_once = True
    _shares: tuple[Part, ...] = ()  # what `split` has divided the envs into

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        faces = [kind for kind in cls.__mro__ if issubclass(kind, PooledVectorEnv) and "step_async" in vars(kind)]
        names = ("step_async", "step_wait")
        cls._steps_at_once = all(getattr(cls, name) is getattr(faces[-1], name) for name in names)

    def _begin(self, pool: Pool, envs: Part) -> None:
        """Begins with nothing pending."""
        self._pool, self._envs, self.env_ids = pool, envs, envs.env_ids
        self._split_off: WeakSet[Any] = WeakSet()
        self._settle()

    @property
    def pool(self) -> Part:
        """The envs as :class:`remuda.Pool` has them, or as :class:`remuda.Part` those of a half.

        It is for what has no place here: states, :func:`remuda.evaluate`, traces. What it does to the envs, they go on
        from, and what it returns comes back from it alone. Close this, and not the pool.
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
        # As `_settle` has it, without a call: every step ends here.
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
        self._check_whole()
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

    def _check_whole(self) -> None:
        """Raises StateError where the envs are reset and stepped in parts."""
        if self._is_split:
            raise StateError(
                "the vector env has been split: use what the latest split() returned, or make it whole with split(1)"
            )

    def split(self, parts: int = 2) -> Any:
        """Not for a part: split the whole into more.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"expected the whole to be split, got a part of it: use whole.split(...), not {parts} of this")

    def _split_pool(self, parts: int, make: Callable[[Part], V]) -> tuple[V, ...]:
        """Divides the pool and returns a vector env for each share of it; an empty tuple if the whole is one share."""
        if self._pool.pending:  # what timed out or was interrupted, or was given up with a part
            self._pool.discard()
        self._shares = self._pool.split(parts)
        self._settle()
        if not self._is_split:
            return ()
        made = tuple(make(share) for share in self._shares)
        self._split_off.update(made)
        return made
