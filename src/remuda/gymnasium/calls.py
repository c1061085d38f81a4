"""Calls of a vector env: methods and attributes of its envs, in their workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.core import ActType, ObsType
from gymnasium.vector.async_vector_env import AsyncState

from remuda import Call, EnvError, SpaceMismatchError
from remuda.gymnasium import arguments
from remuda.gymnasium.errors import raise_original
from remuda.gymnasium.pending import PendingCalls

# These have a method of their own here, or are private messages of Gymnasium's.
_NOT_CALLABLE = ("reset", "step", "close", "_setattr", "_check_spaces")


class EnvCalls(PendingCalls[ObsType, ActType]):
    """The part of a vector env that calls its envs. Its subclass resets and steps them."""

    env_fns: Sequence[Callable[[], Env[ObsType, ActType]]]
    _call: Call | None

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Each env's ``np_random_seed``."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of each env's ``np_random``."""
        return self.get_attr("np_random")

    def render(self) -> tuple[Any, ...]:
        """Each env's ``render()``. Raises as :meth:`call` does."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every env, or of a wrapper around it, or get an attribute.

        Args:
            name: looked up from the outermost wrapper inwards.
            *args: for the method.
            **kwargs: for the method.

        Returns:
            What each env's method returned, or each env's attribute.

        Raises: as :meth:`call_async` and :meth:`call_wait` do.
        """
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Send the envs to :meth:`call`, and return at once; :meth:`call_wait` has the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
            ValueError: ``name`` has a method of its own here: "reset", "step" or "close".
        """
        self._assert_is_running()
        self._assert_nothing_pending("call_async")
        if name in _NOT_CALLABLE:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._drop_unclaimed()
        self._call = self._envs.call_async(name, *args, **kwargs)
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the results of :meth:`call_async`.

        Args:
            timeout: seconds; ``None``: as long as it takes. After a timeout this method may be called again.

        Returns:
            As :meth:`call` does.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: without :meth:`call_async`.
            multiprocessing.TimeoutError: not done in time.
            WorkerDiedError: a worker process died. (EnvTimeoutError, one of its kinds, is no
                ``multiprocessing.TimeoutError``.)
            RestartLimitError: an env failed more often than ``faults`` bears.
            Exception: what an env raised.
        """
        return tuple(self._wait(AsyncState.WAITING_CALL, self._answers, timeout))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each env's attribute, looked up from the outermost wrapper inwards; a method is called. Raises as
        :meth:`call` does."""
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every env: on the wrapper that has it, else on the innermost env.

        With ``faults="restart"`` it is set again on an env that is built anew.

        Args:
            name: of the attribute.
            values: a list or tuple has one value for each env; anything else goes to all, spares too.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: not as many values as envs.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
        """
        self._assert_is_running()
        has_each = isinstance(values, (list, tuple))
        if has_each:
            arguments.check_one_each(values, self.num_envs)
        self._assert_nothing_pending("set_attr")
        set_them = self._envs.set_attrs if has_each else self._envs.set_attr
        try:
            set_them(name, values, lasting=True)
        except EnvError as error:
            raise_original(error)

    def replace(self, env_ids: Iterable[int], env_fns: Sequence[Callable[[], Env[ObsType, ActType]]]) -> None:
        """Put other envs in the place of some, in their workers; see :meth:`remuda.Pool.replace`.

        They are to be reset: by :meth:`reset` with a ``reset_mask``, or with next-step autoreset by the next step. The
        spaces of the vector env stay as they are.

        Args:
            env_ids: whose places; with ``vector_size`` those of whole vector envs.
            env_fns: one for each env, or for each vector env.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: a call waits for its ``*_wait``.
            ValueError, TypeError: arguments of another form; there are spares.
            RuntimeError: their spaces do not fit.
            Exception: what a factory raised. The old envs go on.
        """
        self._assert_is_running()
        self._assert_nothing_pending("replace")
        self._drop_unclaimed()
        ids, factories = list(env_ids), list(env_fns)
        arguments.check_ids(ids, self.num_envs)
        try:
            self._envs.replace([int(self._envs.env_ids[i]) for i in ids], factories)
        except EnvError as error:
            raise_original(error, final=())
        except SpaceMismatchError as error:
            raise RuntimeError(str(error)) from error
        known, width = list(self.env_fns), len(ids) // len(factories)
        for i, env_fn in zip(ids[::width], factories, strict=True):
            known[i // width] = env_fn
        self.env_fns = known

    def _answers(self, timeout: float | None) -> list[Any]:
        assert self._call is not None  # there is one where a call is waited for
        return self._call.result(timeout)
