"""``AsyncVectorEnvPart``: resets, steps and calls some envs of a pool, or all of them."""

from __future__ import annotations

import copy
import functools
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import Env, Space, logger, spaces
from gymnasium.core import ActType, ObsType
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_space, create_empty_array
from numpy import ndarray

from remuda import Batch, Call, Part
from remuda._faces.vector_env import IDLE, STEPPING, PooledVectorEnv
from remuda.errors import RemudaError, StateError
from remuda.gymnasium import arguments
from remuda.gymnasium.errors import translated
from remuda.gymnasium.lazy_infos import LazyInfos
from remuda.gymnasium.releases import IS_0_29, VectorEnv
from remuda.gymnasium.results import Results, join, stack_old

if TYPE_CHECKING:
    from remuda.gymnasium.spaces import ObservationMode

T = TypeVar("T")
Flags = npt.NDArray[np.bool_]
Step = tuple[ObsType, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]

# The names that `call` refuses: of the vector env's methods, and of Gymnasium's private messages.
_NOT_CALLABLE = ("reset", "step", "close", "_setattr", "_check_spaces")


class AsyncVectorEnvPart(PooledVectorEnv, VectorEnv[ObsType, ActType, npt.NDArray[Any]], Generic[ObsType, ActType]):
    """A part of a vector env, made by `AsyncVectorEnv.split`: its envs are reset and stepped apart from the others.

    Env ``i`` here is env ``env_ids[i]`` of the whole. An int ``seed`` gives env ``i`` the seed ``seed + env_ids[i]``:
    if all parts are reset with the same int, their envs begin as those of the whole would.

    Attributes:
        env_ids: (num_envs,) int64, ascending: the ids of these envs in the whole.
        whole: the vector env that was split. It owns the workers; closing it closes this.
    """

    _words = arguments.WORDS
    env_fns: Sequence[Callable[[], Env[Any, Any]]]
    observation_mode: ObservationMode
    lazy_infos: bool
    reward_space: spaces.Box  # missing if rewards are numbers, as in Gymnasium
    _has_old_infos: bool
    _keeps_dtypes: bool  # whether envs receive actions in the dtype of the caller's array
    _has_extras: bool
    _is_scattered = False  # whether several commands are in flight, so that results arrive in any order
    _call: Call | None = None

    def __init__(self, whole: AsyncVectorEnvPart[ObsType, ActType], envs: Part) -> None:
        self.whole = whole
        self.num_envs, ids = envs.num_envs, envs.env_ids.tolist()
        width = whole._pool.vector_size or 1
        self.env_fns = [whole.env_fns[i] for i in dict.fromkeys(env_id // width for env_id in ids)]
        for name in _AS_THE_WHOLE:
            setattr(self, name, copy.copy(getattr(whole, name)))
        self.spec = copy.deepcopy(whole.spec)
        if self.spec is not None:
            self.spec.kwargs["num_envs"] = self.num_envs
        self._lay_out([whole._pool.observation_spaces[i] for i in ids])
        if hasattr(whole, "reward_space"):
            self.reward_space = whole.reward_space
        self._begin(whole._pool, envs)

    def _lay_out(self, reported: Sequence[Space[Any]], batched: Space[Any] | None = None) -> None:
        """Sets the batched spaces, and fills `observations` with zeros.

        Args:
            reported: the observation space of each env.
            batched: the batched space that the caller gave; None: it is computed.
        """
        if batched is None and self.observation_mode == "different":
            from gymnasium.vector.utils import batch_differing_spaces  # Gymnasium 0.29 has neither this nor the mode

            batched = batch_differing_spaces(list(reported))
        elif batched is None:
            batched = batch_space(self.single_observation_space, self.num_envs)
        self.observation_space = batched
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._keeps_dtypes = IS_0_29 and isinstance(self.single_action_space, spaces.Box)
        self.observations: Any = create_empty_array(self.single_observation_space, n=self.num_envs, fn=np.zeros)

    def _settle(self, late: AsyncState = IDLE, *, has_leftovers: bool = False) -> None:
        super()._settle(late, has_leftovers=has_leftovers)
        if late is IDLE:
            self._parts: list[Batch] = []  # the results so far of a reset or step that is not complete

    # -- reset -------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Reset all envs, or those selected by ``options["reset_mask"]``.

        Args:
            seed: an int gives env i ``seed + i``; a sequence has one seed (or ``None``) for each env. With
                ``seeding="per_episode"`` see :meth:`remuda.Pool.reset`.
            options: passed to every env's ``reset``, without ``reset_mask``: a bool array (num_envs,) with at least
                one True. The envs with False are not reset; they return their current observation and no
                info. The dict is not changed.

        Returns:
            (observations, infos). ``observations`` is an element of ``observation_space``.

        Raises: see :meth:`reset_async` and :meth:`reset_wait`.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    @translated
    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Send the reset command with ``seed`` and ``options``, and return at once.

        :meth:`reset_wait` returns the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: the number of seeds is not that of envs, or the mask has another shape or no True.
            TypeError: the mask is not a bool array.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
        """
        self._check_open()
        each = None if seed is None or isinstance(seed, (int, np.integer)) else seed
        if each is not None and len(each) != self.num_envs:
            raise ValueError(
                f"If seeds are passed as a list the length must match num_envs={self.num_envs} but got "
                f"length={len(each)}."
            )
        self._check_idle("reset_async")
        mask, options = arguments.split_mask(options, self.num_envs)
        self._make_way_for_reset()
        self._has_leftovers = True  # if an interruption, such as Ctrl-C, comes between these lines
        if mask is None:
            self._envs.send_reset(seed=seed, options=options)
        else:
            env_ids = self._envs.env_ids
            seeds = seed if each is None else [*compress(each, mask)]
            self._envs.send_reset(seed=seeds, options=options, env_ids=env_ids[mask].tolist())
            self._envs._repeat_obs(env_ids[~mask].tolist())
        self._state, self._is_scattered = AsyncState.WAITING_RESET, mask is not None

    def reset_wait(
        self, timeout: float | None = None, seed: object = None, options: object = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Wait for the results of :meth:`reset_async`, and return them as :meth:`reset` does.

        Args:
            timeout: see :meth:`step_wait`.
            seed, options: without effect: vector wrappers of Gymnasium 0.29 pass them again.

        Raises: see :meth:`step_wait`; NoAsyncCallError if :meth:`reset_async` was not called.
        """
        got = self._result_of(AsyncState.WAITING_RESET, self._receive, timeout)
        return self.observations, self._infos(got)

    # -- step --------------------------------------------------------------------------------------------

    def step(self, actions: ActType) -> Step[ObsType]:
        """Step every env with its action.

        Args:
            actions: an element of ``action_space``, or a sequence of ``num_envs`` single actions. They are converted
                to the dtype of the action space.

        Returns:
            (observations, rewards, terminations, truncations, infos): an element of ``observation_space``,
            three arrays (num_envs,) of float64, bool and bool, and the infos as arrays with ``_key`` masks.

        Raises: see :meth:`step_async` and :meth:`step_wait`.
        """
        if (
            self._state is not IDLE
            or self._has_leftovers
            or self.closed
            or self._keeps_dtypes
            or not self._steps_at_once
        ):
            self.step_async(actions)
            return self.step_wait()
        if not isinstance(actions, ndarray) or actions.ndim == 0:
            arguments.check_iterable(actions)
        try:
            batch = self._envs.step(actions)
        except BaseException as error:
            self._note_failed_step(error)
            translated.raise_for(error)
        self.observations, rewards, terminations, truncations, has_infos = batch._results()
        if self._has_extras:
            self.extras = batch.extras
        infos = self._infos(batch) if has_infos or self.lazy_infos else {}
        return self.observations, rewards, terminations, truncations, infos

    @translated
    def step_async(self, actions: ActType) -> None:
        """Send the actions, as :meth:`step` takes them, and return at once; :meth:`step_wait` returns the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
            TypeError: the actions are not a sequence.
            InvalidActionError: a ValueError: the number, shape, dtype or range of the actions is wrong. Nothing was
                sent.
            StateError: a RuntimeError: an env must be reset first. Nothing was sent.
        """
        if self.closed or self._state is not IDLE:
            self._check_open()
            self._check_idle("step_async")
        arguments.check_iterable(actions)
        if self._has_leftovers:
            self._drop_leftovers()
        if self._keeps_dtypes and arguments.is_other_float(actions, self.single_action_space):
            self._envs.send(actions, as_given=True)
        else:
            self._envs.send(actions)
        self._state, self._is_scattered = STEPPING, False

    def step_wait(self, timeout: float | None = None) -> Step[ObsType]:
        """Wait for the results of :meth:`step_async`, and return them as :meth:`step` does.

        Args:
            timeout: the limit in seconds; ``None``: no limit. After a timeout this method may be called again.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: :meth:`step_async` was not called.
            multiprocessing.TimeoutError: the results did not arrive in time.
            WorkerDiedError: a worker process died. (Its subclass EnvTimeoutError is not a
                ``multiprocessing.TimeoutError``.)
            RestartLimitError: an env failed more often than ``faults`` allows.
            Exception: an env raised it.
        """
        got = self._result_of(STEPPING, self._receive, timeout)
        return self.observations, got.rewards, got.terminations, got.truncations, self._infos(got)

    # -- calls -------------------------------------------------------------------------------------------

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Each env's ``np_random_seed``."""
        return self.get_attr("np_random_seed")

    if TYPE_CHECKING or not IS_0_29:  # Gymnasium 0.29's vector envs have one generator of their own

        @property  # type: ignore[misc]
        def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
            """The random generators of the envs (``np_random``), as copies."""
            return self.get_attr("np_random")

    def render(self) -> tuple[Any, ...]:
        """Return the result of each env's ``render()``. Raises the errors of :meth:`call`."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every env, or of a wrapper around it, or get an attribute.

        Args:
            name: the name, which is looked up from the outermost wrapper inwards.
            *args: arguments of the method.
            **kwargs: keywords of the method.

        Returns:
            The result of each env's method, or each env's attribute.

        Raises: see :meth:`call_async` and :meth:`call_wait`.
        """
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Send the call, with the arguments of :meth:`call`, and return at once; :meth:`call_wait` returns the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
            ValueError: ``name`` is "reset", "step" or "close", which have methods here.
        """
        self._check_open()
        self._check_idle("call_async")
        if name in _NOT_CALLABLE:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._drop_leftovers()
        self._call = self._envs.call_async(name, *args, **kwargs)
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the results of :meth:`call_async`, and return them as :meth:`call` does.

        Args:
            timeout: see :meth:`step_wait`.

        Raises: see :meth:`step_wait`; NoAsyncCallError if :meth:`call_async` was not called.
        """
        return tuple(self._result_of(AsyncState.WAITING_CALL, self._answers, timeout))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each env's attribute, looked up from the outermost wrapper inwards. A method is called instead.
        Raises the errors of :meth:`call`."""
        return self.call(name)

    @translated
    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every env: on the wrapper that has it, else on the innermost env.

        With ``faults="restart"`` it is set again on an env that is rebuilt.

        Args:
            name: the name of the attribute.
            values: a list or tuple has one value for each env; any other value is set on all envs and spares.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: the number of values is not that of envs.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
        """
        self._check_open()
        has_each = isinstance(values, (list, tuple))
        if has_each and len(values) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} values, one for each env, got {len(values)}")
        self._check_idle("set_attr")
        set_them = self._envs.set_attrs if has_each else self._envs.set_attr
        set_them(name, values, lasting=True)

    @translated
    def replace(self, env_ids: Iterable[int], env_fns: Sequence[Callable[[], Env[ObsType, ActType]]]) -> None:
        """Replace some envs by others, in the same workers; see :meth:`remuda.Pool.replace`.

        The new envs must be reset: by :meth:`reset` with a ``reset_mask``, or with next-step autoreset by the next
        step. The spaces of the vector env do not change.

        Args:
            env_ids: the envs to replace; with ``vector_size`` those of whole vector envs.
            env_fns: a factory for each env, or for each vector env.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: a call waits for its ``*_wait``.
            ValueError, TypeError: an argument is wrong, or there are spares.
            IndexError: an env does not exist.
            RuntimeError: the spaces of the new envs do not fit.
            Exception: a factory raised it. The old envs stay in use.
        """
        self._make_way_for("replace")
        ids, factories = self._positions(env_ids), list(env_fns)
        self._envs.replace(self.env_ids[ids].tolist(), factories)
        known, width = list(self.env_fns), self._pool.vector_size or 1
        for i, env_fn in zip(ids[::width], factories, strict=True):
            known[i // width] = env_fn
        self.env_fns = known

    # -- closing -----------------------------------------------------------------------------------------

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Wait for the pending call, and close this part, not the whole vector env; :meth:`close` calls this method.

        Args:
            timeout: the seconds to wait for the pending call; ``None``: no limit.
            terminate: do not wait. The workers belong to the whole and continue.

        Raises:
            Exception: an env raised it in the pending call, or the call timed out. The part is closed nevertheless.
        """
        try:
            if not terminate:
                self._finish_pending(timeout)
        finally:
            self._let_go()

    def _finish_pending(self, timeout: float | None, terminate: bool = False) -> None:
        """Warns that a call is pending, and waits for its results. Does nothing if none is pending."""
        if self._state is IDLE:
            return
        pending = self._state.value
        logger.warn(f"Calling `close` while waiting for a pending call to `{pending}` to complete.")
        if not terminate:
            getattr(self, f"{pending}_wait")(timeout)

    def _let_go(self) -> None:
        super()._let_go()
        self.observations = copy.deepcopy(self.observations)

    # -- waiting -----------------------------------------------------------------------------------------

    def _result_of(self, call: AsyncState, receive: Callable[[float | None], T], timeout: float | None) -> T:
        """Receives the results of ``call`` with ``receive(timeout)``. The call must be pending, or have timed out."""
        if self.closed:
            self._check_open()
        if call not in (self._state, self._late):
            raise NoAsyncCallError(
                f"Calling `{call.value}_wait` without any prior call to `{call.value}_async`.", call.value
            )
        try:
            return self._wait(call, receive, timeout)
        except RemudaError as error:
            translated.raise_for(error)
        except TimeoutError:
            raise multiprocessing.TimeoutError(
                f"The call to `{call.value}_wait` has timed out after {timeout} second(s)."
            ) from None

    def _receive(self, timeout: float | None) -> Results:
        """Waits for the results of every env. If this times out, the results so far are kept for the next wait.

        Raises:
            TimeoutError: some envs did not answer in time.
        """
        batch = self._envs.recv(timeout=timeout, order="slot" if self._is_scattered else "arrival")
        got: Results = batch
        if len(batch.env_ids) < self.num_envs:
            self._parts.append(batch)
            if sum(map(len, self._parts)) < self.num_envs:
                if self._envs.pending:
                    raise TimeoutError
                missing = set(self.env_ids.tolist()).difference(*[part.env_ids.tolist() for part in self._parts])
                raise StateError(
                    f"expected a result of each env, got none of envs {sorted(missing)}: a signal interrupted them; "
                    "call reset"
                )
            got, self._parts = join(self._parts, self.single_observation_space, self._add_info), []
        self.observations = got.obs
        if self._has_extras:
            self.extras = got.extras
        return got

    def _infos(self, got: Results) -> dict[str, Any]:
        stack = functools.partial(stack_old, got) if self._has_old_infos else got.stack_infos
        return LazyInfos(stack) if self.lazy_infos else stack()

    def _answers(self, timeout: float | None) -> list[Any]:
        assert self._call is not None  # `_result_of` has checked that a call is pending
        try:
            return self._call.result(timeout)
        except BaseException:
            if self._call.done:  # a signal interrupted an env that runs in this thread, and that is the result
                self._settle()
            raise

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")

    def _check_idle(self, method: str) -> None:
        if self._state is not IDLE:
            raise AlreadyPendingCallError(
                f"Calling `{method}` while waiting for a pending call to `{self._state.value}` to complete.",
                self._state.value,
            )


_AS_THE_WHOLE = (
    *("shared_memory", "copy", "context", "daemon", "worker", "observation_mode", "autoreset_mode", "max_concurrency"),
    *("lazy_infos", "metadata", "render_mode", "single_action_space", "single_observation_space", "_has_extras"),
    "_has_old_infos",
)
