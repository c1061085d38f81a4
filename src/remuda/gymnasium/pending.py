"""The call of a vector env that is pending: sent by one of the ``*_async`` methods, and not waited for yet."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy.typing as npt
from gymnasium.core import ActType, ObsType
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from remuda import Batch, Part
from remuda._faces.pools import HasPool
from remuda.errors import EnvError, EnvTimeoutError, RemudaError
from remuda.gymnasium.errors import raise_original

T = TypeVar("T")

# Names of our own: until Python 3.12 a member of an enum takes as long to look up as an array to make.
IDLE, STEPPING = AsyncState.DEFAULT, AsyncState.WAITING_STEP


class PendingCalls(HasPool, VectorEnv[ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]):
    """The part of a vector env that knows which call is pending, and waits for it."""

    def _begin_idle(self, envs: Part) -> None:
        self._envs = envs
        self._state = IDLE
        self._late = IDLE  # the call that timed out, and may be waited for again
        self._unclaimed = False  # something is in flight that no pending call waits for
        self._parts: list[Batch] = []  # of a reset or step that is not complete yet

    def _assert_is_running(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")

    def _assert_nothing_pending(self, method: str) -> None:
        if self._state is not IDLE:
            raise AlreadyPendingCallError(
                f"Calling `{method}` while waiting for a pending call to `{self._state.value}` to complete.",
                self._state.value,
            )

    def _wait(self, state: AsyncState, receive: Callable[[float | None], T], timeout: float | None) -> T:
        """Return ``receive(timeout)`` for the call that ``state`` stands for; then no call is pending.

        An interruption, such as Ctrl-C, leaves it pending: its wait may be called again.
        """
        if self.closed:
            self._assert_is_running()
        if state not in (self._state, self._late):
            raise NoAsyncCallError(
                f"Calling `{state.value}_wait` without any prior call to `{state.value}_async`.", state.value
            )
        try:
            got = receive(timeout)
        except EnvTimeoutError:  # a TimeoutError, but not that of waiting
            self._settle(unclaimed=True)
            raise
        except TimeoutError:
            self._settle(late=state, unclaimed=True)
            raise multiprocessing.TimeoutError(
                f"The call to `{state.value}_wait` has timed out after {timeout} second(s)."
            ) from None
        except EnvError as error:
            self._settle(unclaimed=True)
            raise_original(error)
        except RemudaError:
            self._settle(unclaimed=True)
            raise
        # As `_settle` has it, but without a call: every step ends here.
        self._state, self._late, self._unclaimed, self._parts = IDLE, IDLE, False, []
        return got

    def _settle(self, late: AsyncState = IDLE, unclaimed: bool = False) -> None:
        """Let no call be pending; ``late`` may be waited for again, ``unclaimed`` results are dropped some time."""
        self._state, self._late, self._unclaimed = IDLE, late, unclaimed
        if late is IDLE:
            self._parts = []

    def _drop_unclaimed(self) -> None:
        """Wait for what an earlier call left in flight and drop it, so that answers meet their questions."""
        if self._unclaimed:
            self._drop()
            self._settle()
