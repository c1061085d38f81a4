"""``AsyncVectorEnv``: Gymnasium's vector env on a remuda pool."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import Env, logger
from gymnasium.core import ActType, ObsType
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from remuda import Batch, Pool
from remuda.errors import EnvError, SpaceMismatchError
from remuda.gymnasium import arguments, spaces
from remuda.gymnasium.errors import raise_original

T = TypeVar("T")

_AUTORESET = {
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.DISABLED: "disabled",
}

# Names that have a method of their own here, or that are Gymnasium's private messages.
_NOT_CALLABLE = ("reset", "step", "close", "_setattr", "_check_spaces")


class AsyncState(Enum):
    """What an :class:`AsyncVectorEnv` is waiting for."""

    DEFAULT = "default"
    WAITING_RESET = "reset"
    WAITING_STEP = "step"
    WAITING_CALL = "call"


class AsyncVectorEnv(VectorEnv[ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]):
    """Steps many envs in parallel, in worker processes: a :class:`gymnasium.vector.AsyncVectorEnv` on a pool.

    No env is ever built in the calling process: spaces, metadata and ``render_mode`` come from the workers.

    The arrays that :meth:`reset` and :meth:`step` return are views of memory shared with the workers, leased
    to you: nothing overwrites them while you hold them or a view of them, and you may write to them.

    Args:
        env_fns: make the envs, each in its worker.
        shared_memory: observations travel through shared memory either way. ``True`` refuses spaces of
            classes that Gymnasium does not know, as the original does; ``False`` carries them.
        copy: you may keep the observations either way, and neither way costs a copy.
        context: how workers start: "forkserver" (``None`` means that), "spawn" or "fork".
        daemon: accepted, and without effect: workers may have children of their own, and no worker outlives
            this process.
        worker: not supported: what a worker function talks to (pipes, an error queue) does not exist here.
        observation_mode: "same" (all observation spaces are equal), "different" (they differ in their
            bounds), or (batched space, single space).
        autoreset_mode: when a finished env is reset, see :class:`gymnasium.vector.AutoresetMode`.
        max_concurrency: at most this many workers run ``reset`` or ``step`` at once.
        num_workers: how many workers share the envs; ``None``: one each; "auto": as many as measuring says.
        backend: "process", "thread" or "serial".
        frames: batches that can be held at once without a copy.
        preload: modules that the forkserver imports once for all workers.
        threads_per_worker: threads of numeric libraries in a worker; ``None``: leave them alone.
        start_timeout: seconds that the workers may take to build their envs; ``None``: as long as they like.
        advise: warn once when measuring says that another ``num_workers`` would be several times faster.
        lazy_infos: return a dict that is filled when somebody first looks at it, instead of a plain dict.

    Raises:
        RuntimeError: the envs' spaces disagree.
        ValueError: a bad ``observation_mode``, ``autoreset_mode``, ``max_concurrency`` or ``context``, a
            ``worker`` with another signature, or a custom space under ``shared_memory=True``.
        NotImplementedError: a ``worker``.
        StartTimeoutError: an env took longer to build than ``start_timeout``.
        WorkerDiedError: a worker died while it built its envs.
        Exception: whatever an env factory raised.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        observation_mode: spaces.ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | Literal["auto"] | None = None,
        backend: Literal["process", "thread", "serial"] = "process",
        frames: int = 4,
        preload: Sequence[str] = (),
        threads_per_worker: int | None = 1,
        start_timeout: float | None = 60.0,
        advise: bool = True,
    ) -> None:
        self.env_fns = env_fns
        self.shared_memory = shared_memory
        self.copy = copy
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.max_concurrency = max_concurrency
        arguments.check_max_concurrency(max_concurrency)
        arguments.refuse_worker(worker)
        spaces.check_observation_mode(observation_mode)

        self._pool = self._start(
            env_fns,
            num_workers=num_workers,
            backend=backend,
            start_method=context,
            autoreset=_AUTORESET[self.autoreset_mode],
            frames=frames,
            observation_space=observation_mode[1] if isinstance(observation_mode, tuple) else None,
            max_concurrency=max_concurrency,
            preload=preload,
            threads_per_worker=threads_per_worker,
            start_timeout=start_timeout,
            advise=advise,
            name=f"Worker<{type(self).__name__}>",
        )
        try:
            self._adopt(self._pool)
        except BaseException:
            self._pool.close(terminate=True)
            raise
        self._state = AsyncState.DEFAULT
        self._late = AsyncState.DEFAULT  # what a timed-out wait has left in flight

    # -- starting ----------------------------------------------------------------------------------

    def _start(self, env_fns: Sequence[Callable[[], Env[Any, Any]]], **options: Any) -> Pool:
        try:
            return Pool(env_fns, **options)
        except EnvError as error:
            raise_original(error)
        except SpaceMismatchError as error:
            raise RuntimeError(str(error)) from error

    def _adopt(self, pool: Pool) -> None:
        """Take over what the workers reported, and check that the envs go together."""
        mode = self.observation_mode
        self.num_envs = pool.num_envs
        self.metadata = {**pool.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = pool.render_mode
        self.single_action_space = pool.single_action_space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        single, batched = spaces.batch_observation_space(mode, pool.observation_spaces)
        self.single_observation_space, self.observation_space = single, batched
        spaces.check_observation_spaces(mode, single, pool.observation_spaces)
        spaces.check_action_spaces(self.single_action_space, pool.action_spaces)
        if self.shared_memory and spaces.is_custom(single):
            raise ValueError(
                "expected an observation space of Gymnasium's own classes under shared_memory=True, "
                f"got {single}: pass shared_memory=False, which carries any space."
            )
        self.observations: ObsType = create_empty_array(single, n=self.num_envs, fn=np.zeros)  # type: ignore[assignment]

    # -- attributes --------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Worker]:
        """The workers; each has ``name``, ``pid``, ``exitcode``, ``is_alive()``, and ``env_ids``, its envs."""
        return list(self._pool.workers)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Each env's ``np_random_seed``."""
        return self.get_attr("np_random_seed")

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of each env's ``np_random``."""
        return self.get_attr("np_random")

    # -- reset -------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Reset all envs, or those under ``options["reset_mask"]``.

        Args:
            seed: an int gives env i ``seed + i``; a sequence has one seed (or ``None``) for each env.
            options: go to every env's ``reset``, but for ``reset_mask``: a bool array (num_envs,), at least
                one True. The envs under False are not reset; they return their current observation and no
                info. The dict is not changed.

        Returns:
            (observations, infos). ``observations`` is an element of ``observation_space``.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Send the envs to :meth:`reset`, and return at once; :meth:`reset_wait` has the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: not as many seeds as envs, or a mask of another shape, or without a True.
            TypeError: the mask is no bool array.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
        """
        self._assert_is_running()
        seeds = self._one_seed_each(seed)
        self._assert_nothing_pending("reset_async")
        mask = None
        if options is not None and "reset_mask" in options:
            mask = self._checked_mask(options["reset_mask"])
            options = {key: value for key, value in options.items() if key != "reset_mask"}

        self._drop_late()
        if mask is None:
            self._pool.send_reset(seed=seeds, options=options)
        else:
            chosen = np.flatnonzero(mask)
            self._pool.send_reset(seed=[seeds[i] for i in chosen], options=options, env_ids=chosen)
            self._pool.send_observe(env_ids=np.flatnonzero(~mask))
        self._state = AsyncState.WAITING_RESET

    def reset_wait(self, timeout: float | None = None) -> tuple[ObsType, dict[str, Any]]:
        """Wait for the results of :meth:`reset_async`.

        Args:
            timeout: seconds; ``None``: as long as it takes. After a timeout this method may be called again.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: without :meth:`reset_async`.
            multiprocessing.TimeoutError: not done in time.
            WorkerDiedError: a worker process died.
            Exception: what an env raised.
        """
        batch = self._receive(AsyncState.WAITING_RESET, timeout)
        return self.observations, self._infos(batch)

    def _one_seed_each(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                "If seeds are passed as a list the length must match "
                f"num_envs={self.num_envs} but got length={len(seed)}."
            )
        return seed

    def _checked_mask(self, mask: Any) -> npt.NDArray[np.bool_]:
        where = "`options['reset_mask']` must"
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"{where} be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"{where} have shape `({self.num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise TypeError(f"{where} have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise ValueError(
                f"{where} contain a boolean array with at least one True value, got reset_mask={mask}"
            )
        return mask

    # -- step --------------------------------------------------------------------------------------

    def step(
        self, actions: ActType
    ) -> tuple[
        ObsType, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
    ]:
        """Step every env with its action.

        Args:
            actions: an element of ``action_space``, or a sequence of ``num_envs`` single actions.

        Returns:
            (observations, rewards, terminations, truncations, infos): an element of ``observation_space``,
            three arrays (num_envs,) of float64, bool and bool, and the infos as arrays with ``_key`` masks.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: ActType) -> None:
        """Send the envs to :meth:`step`, and return at once; :meth:`step_wait` has the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
            TypeError: the actions are no sequence.
            InvalidActionError: a ValueError: another number of actions than envs, or another shape, dtype or
                range. Nothing was sent.
        """
        self._assert_is_running()
        self._assert_nothing_pending("step_async")
        self._drop_late()
        self._pool.send(actions)
        self._state = AsyncState.WAITING_STEP

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[
        ObsType, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]
    ]:
        """Wait for the results of :meth:`step_async`.

        Args:
            timeout: seconds; ``None``: as long as it takes. After a timeout this method may be called again.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: without :meth:`step_async`.
            multiprocessing.TimeoutError: not done in time.
            WorkerDiedError: a worker process died.
            Exception: what an env raised.
        """
        batch = self._receive(AsyncState.WAITING_STEP, timeout)
        return self.observations, batch.reward, batch.terminated, batch.truncated, self._infos(batch)

    # -- calls -------------------------------------------------------------------------------------

    def render(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Each env's ``render()``."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every env, or of a wrapper around it, or get an attribute.

        Args:
            name: looked up from the outermost wrapper inwards.
            *args: for the method.
            **kwargs: for the method.

        Returns:
            What each env's method returned, or each env's attribute.
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
        self._drop_late()
        self._call = self._pool.call_async(name, *args, **kwargs)
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the results of :meth:`call_async`.

        Args:
            timeout: seconds; ``None``: as long as it takes. After a timeout this method may be called again.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: without :meth:`call_async`.
            multiprocessing.TimeoutError: not done in time.
            WorkerDiedError: a worker process died.
            Exception: what an env raised.
        """
        return tuple(self._wait(AsyncState.WAITING_CALL, self._call.result, timeout))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each env's attribute, looked up from the outermost wrapper inwards; a method is called."""
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every env, where a wrapper has it, else of the innermost env.

        Args:
            name: of the attribute.
            values: a list or tuple has one value for each env; anything else goes to all.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: not as many values as envs.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
        """
        self._assert_is_running()
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        self._assert_nothing_pending("set_attr")
        try:
            self._pool.set_attrs(name, values)
        except EnvError as error:
            raise_original(error)

    # -- closing -----------------------------------------------------------------------------------

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the envs and stop the workers; what :meth:`close` calls.

        Args:
            timeout: seconds to wait for a pending call and for the envs to close; workers that take longer
                are killed. ``None``: as long as it takes.
            terminate: do not wait: kill the workers.

        Raises:
            Exception: what an env raised in a call that was still pending, or in its ``close``. Everything is
                closed all the same.
        """
        try:
            if self._state is not AsyncState.DEFAULT:
                pending = self._state.value
                logger.warn(f"Calling `close` while waiting for a pending call to `{pending}` to complete.")
                if not terminate:
                    getattr(self, f"{pending}_wait")(timeout)
        except multiprocessing.TimeoutError:
            terminate = True
        finally:
            self.closed = True
            self._pool.close(timeout=timeout, terminate=terminate)

    def __del__(self) -> None:
        if not self.closed and hasattr(self, "_state"):
            self.close(terminate=True)

    # -- waiting -----------------------------------------------------------------------------------

    def _receive(self, state: AsyncState, timeout: float | None) -> Batch:
        batch = self._wait(state, self._recv_all, timeout)
        self.observations = batch.obs
        return batch

    def _wait(self, state: AsyncState, result: Callable[[float | None], T], timeout: float | None) -> T:
        """Return ``result(timeout)`` for the call that ``state`` stands for; then no call is pending."""
        self._assert_is_running()
        if state not in (self._state, self._late):
            raise NoAsyncCallError(
                f"Calling `{state.value}_wait` without any prior call to `{state.value}_async`.", state.value
            )
        late = AsyncState.DEFAULT
        try:
            return result(timeout)
        except TimeoutError:
            late = state
            raise multiprocessing.TimeoutError(
                f"The call to `{state.value}_wait` has timed out after {timeout} second(s)."
            ) from None
        except EnvError as error:
            raise_original(error)
        finally:
            self._state, self._late = AsyncState.DEFAULT, late

    def _drop_late(self) -> None:
        """Wait for what a timed-out call left in flight, and drop it: nobody asked for it in time."""
        if self._late is not AsyncState.DEFAULT:
            self._late = AsyncState.DEFAULT
            self._pool.discard()

    def _assert_is_running(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(
                f"Trying to operate on `{type(self).__name__}`, after a call to `close()`."
            )

    def _assert_nothing_pending(self, method: str) -> None:
        if self._state is not AsyncState.DEFAULT:
            raise AlreadyPendingCallError(
                f"Calling `{method}` while waiting for a pending call to `{self._state.value}` to complete.",
                self._state.value,
            )
