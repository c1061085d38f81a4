"""``AsyncVectorEnv``: Gymnasium's vector env on a remuda pool."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import Env, logger
from gymnasium.core import ActType, ObsType
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_space, create_empty_array

from remuda import FaceOptions, Part, Pool, PoolOptions, Rollout
from remuda._faces.layout import one_process_an_env
from remuda._keywords import names_keywords
from remuda.errors import EnvError, InvalidActionError, RemudaError, StateError
from remuda.gymnasium import arguments, spaces
from remuda.gymnasium.autoreset import POOL_MODE, AutoresetMode
from remuda.gymnasium.calls import EnvCalls
from remuda.gymnasium.errors import raise_original, start_pool
from remuda.gymnasium.lazy_infos import LazyInfos
from remuda.gymnasium.pending import IDLE, STEPPING
from remuda.gymnasium.results import Results, join
from remuda.gymnasium.suggested_code import SUGGESTED_CODE

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11

    from remuda import ColumnType

# A name of our own: a module with a `__getattr__` is slow to look into.
Array = np.ndarray
Flags = npt.NDArray[np.bool_]
Step = tuple[ObsType, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]


@names_keywords(PoolOptions.__annotations__, arguments.REFUSED)
class AsyncVectorEnv(EnvCalls[ObsType, ActType]):
    """Steps many envs in parallel, in worker processes: :class:`gymnasium.vector.AsyncVectorEnv` on a pool.

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
        max_concurrency: at most this many workers run ``reset`` or ``step`` at once; calls are not limited.
        lazy_infos: return infos that are gathered when somebody first looks at them (a subclass of dict),
            instead of a plain dict.
        **options: all others of :class:`remuda.PoolOptions`: ``num_workers``, ``faults``, ``spares`` and so on. Under
            ``faults="restart"`` an episode that is cut off ends truncated with ``infos["fault"]``, and the env comes
            back. With ``seeding="per_episode"`` ``single_action_space`` is seeded too, ``action_space`` is not. The
            error that names the file of a ``record`` is the cause of the one that is raised. ``name`` is that of this
            class.

    Attributes:
        extras: the columns of ``extras=``, by name: arrays with a row for each env, of the latest reset or step. They
            are leased as observations are. Empty before the first reset.

    Raises:
        RuntimeError: the envs' spaces disagree.
        ValueError: a bad ``observation_mode``, ``autoreset_mode``, ``max_concurrency`` or ``context``, a
            ``worker`` with another signature, or a custom space under ``shared_memory=True``.
        NotImplementedError: a ``worker``.
        StartTimeoutError: an env took longer to build than ``start_timeout``.
        TypeError: an option that there is not, or that has another name here.
        WorkerDiedError: a worker died while it built its envs.
        Exception: whatever an env factory raised.
    """

    _steps_at_once = True  # unless a subclass has its own of the two methods that `step` stands for

    _suggested_code = SUGGESTED_CODE

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        own: type[Any] = cls
        cls._steps_at_once = own.step_async is AsyncVectorEnv.step_async and own.step_wait is AsyncVectorEnv.step_wait

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
        lazy_infos: bool = False,
        **options: Unpack[FaceOptions],
    ) -> None:
        self.env_fns = list(env_fns) if isinstance(env_fns, Iterator) else env_fns
        self.shared_memory = shared_memory
        self.copy = copy
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.observation_mode = observation_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.max_concurrency = max_concurrency
        self.lazy_infos = lazy_infos
        arguments.check_constructor(max_concurrency, worker)
        spaces.check_observation_mode(observation_mode)

        one_process_an_env(options)
        options["name"] = options.get("name") or f"Worker<{type(self).__name__}>"
        self._has_extras = bool(options.get("extras"))
        self._pool = start_pool(
            self.env_fns,
            max_concurrency=None if max_concurrency is None else int(max_concurrency),
            start_method=arguments.check_context(context),
            autoreset=POOL_MODE[self.autoreset_mode],
            observation_space=observation_mode[1] if isinstance(observation_mode, tuple) else None,
            **options,
        )
        try:
            self._adopt(self._pool)
        except BaseException:
            self._pool.close(terminate=True)
            raise
        self._begin(self._pool)
        self._shares = (self._pool,)
        self._split_off: weakref.WeakSet[AsyncVectorEnv[ObsType, ActType]] = weakref.WeakSet()

    def _begin(self, envs: Part) -> None:
        """Begin with nothing pending. ``envs``: what is stepped and called, the pool's own or some of them."""
        self._begin_idle(envs)
        self.extras: dict[str, npt.NDArray[Any]] = {}
        self._scattered = False  # the envs were sent in several groups: they come back in any order
        self._call = None

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
        self.observations: Any = create_empty_array(single, n=self.num_envs, fn=np.zeros)

    # -- attributes --------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Any]:
        """The workers; each has ``name``, ``pid``, ``exitcode``, ``is_alive()`` and its envs' ``env_ids``."""
        return list(self._pool.workers)

    # -- reset -------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Reset all envs, or those under ``options["reset_mask"]``. Raises as its ``_async`` and ``_wait`` do.

        Args:
            seed: an int gives env i ``seed + i``; a sequence has one seed (or ``None``) for each env. With
                ``seeding="per_episode"`` see :meth:`remuda.Pool.reset`.
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
        """Send the envs to :meth:`reset` with ``seed`` and ``options``, and return at once.

        :meth:`reset_wait` has the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: not as many seeds as envs, or a mask of another shape, or without a True.
            TypeError: the mask is no bool array.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
        """
        self._assert_is_running()
        arguments.check_seeds(seed, self.num_envs)
        self._assert_nothing_pending("reset_async")
        mask, options = arguments.split_mask(options, self.num_envs)
        self._drop_unclaimed()
        self._drop_rest_of_rollout()
        if mask is None:
            self._envs.send_reset(seed=seed, options=options)
        else:
            env_ids, seeds = self._envs.env_ids, arguments.seeds_of(np.flatnonzero(mask).tolist(), seed)
            self._envs.send_observe(env_ids=env_ids[~mask].tolist())
            self._envs.send_reset(seed=seeds, options=options, env_ids=env_ids[mask].tolist())
        self._state, self._scattered = AsyncState.WAITING_RESET, mask is not None

    def reset_wait(self, timeout: float | None = None) -> tuple[ObsType, dict[str, Any]]:
        """Wait for the results of :meth:`reset_async`; returns them as :meth:`reset` does.

        Args:
            timeout: seconds; ``None``: as long as it takes. After a timeout this method may be called again.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: without :meth:`reset_async`.
            multiprocessing.TimeoutError: not done in time.
            WorkerDiedError: a worker process died. (EnvTimeoutError, one of its kinds, is no
                ``multiprocessing.TimeoutError``.)
            RestartLimitError: an env failed more often than ``faults`` bears.
            Exception: what an env raised.
        """
        got = self._wait(AsyncState.WAITING_RESET, self._receive, timeout)
        return self.observations, self._infos(got)

    # -- step --------------------------------------------------------------------------------------------

    def step(self, actions: ActType) -> Step[ObsType]:
        """Step every env with its action. Raises what :meth:`step_async` and :meth:`step_wait` do.

        Args:
            actions: an element of ``action_space``, or a sequence of ``num_envs`` single actions. They reach
                the envs in the dtype of the action space.

        Returns:
            (observations, rewards, terminations, truncations, infos): an element of ``observation_space``,
            three arrays (num_envs,) of float64, bool and bool, and the infos as arrays with ``_key`` masks.
        """
        if self._state is not IDLE or self._unclaimed or self.closed or not self._steps_at_once:
            self.step_async(actions)
            return self.step_wait()
        if not isinstance(actions, Array) or actions.ndim == 0:
            arguments.check_iterable(actions)
        try:
            batch = self._envs.step(actions)
        except (InvalidActionError, StateError):  # nothing was sent
            raise
        except EnvError as error:
            self._settle(unclaimed=True)
            raise_original(error)
        except RemudaError:
            self._settle(unclaimed=True)
            raise
        except BaseException:  # an interruption, such as Ctrl-C: what was sent may still be waited for
            if self._envs.pending:
                self._state, self._scattered = STEPPING, False
            raise
        self._late, self.observations = IDLE, batch.obs
        if self._has_extras:
            self.extras = batch.extras
        return self.observations, batch.reward, batch.terminated, batch.truncated, self._infos(batch)

    def step_async(self, actions: ActType) -> None:
        """Send the envs to :meth:`step`, and return at once; :meth:`step_wait` has the results.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: another call waits for its ``*_wait``.
            TypeError: the actions are no sequence.
            InvalidActionError: a ValueError: another number of actions than envs, or another shape, dtype or
                range. Nothing was sent.
            StateError: a RuntimeError: an env has not been reset, or not since it raised. Nothing was sent.
        """
        if self.closed or self._state is not IDLE:
            self._assert_is_running()
            self._assert_nothing_pending("step_async")
        arguments.check_iterable(actions)
        if self._unclaimed:
            self._drop_unclaimed()
        self._envs.send(actions)
        self._state, self._scattered = STEPPING, False

    def step_wait(self, timeout: float | None = None) -> Step[ObsType]:
        """Wait for the results of :meth:`step_async`; returns them as :meth:`step` does.

        Args:
            timeout: seconds; ``None``: as long as it takes. After a timeout this method may be called again.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            NoAsyncCallError: without :meth:`step_async`.
            multiprocessing.TimeoutError: not done in time.
            WorkerDiedError: a worker process died. (EnvTimeoutError, one of its kinds, is no
                ``multiprocessing.TimeoutError``.)
            RestartLimitError: an env failed more often than ``faults`` bears.
            Exception: what an env raised.
        """
        got = self._wait(STEPPING, self._receive, timeout)
        return self.observations, got.reward, got.terminated, got.truncated, self._infos(got)

    # -- rollouts ----------------------------------------------------------------------------------------

    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Have the next ``steps`` steps written where a learner reads them; as :meth:`remuda.Pool.rollout`.

        Every :meth:`step` goes there too, until the rollout is full or the envs are reset.

        Args:
            steps: from 1 up.
            columns: what will be kept beside: names, and for each a dtype or (dtype, shape).
            parts: step the envs in so many parts, each while the policy deals with the others.

        Returns:
            A :class:`remuda.Rollout`, to be iterated over. Its names are those of the pool.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            AlreadyPendingCallError: a call waits for its ``*_wait``.
            ValueError, TypeError: bad arguments, a space with parts that have no column, or ``AutoresetMode.DISABLED``.
            MemoryError: there is not that much memory.
            StateError: a RuntimeError: an env must be reset first.
            Exception: what an env raised.
        """
        self._assert_is_running()
        self._assert_nothing_pending("rollout")
        self._drop_unclaimed()
        try:
            return self._envs.rollout(steps, columns, parts)
        except EnvError as error:
            raise_original(error)

    # -- halves ------------------------------------------------------------------------------------------

    def split(self, parts: int = 2) -> tuple[AsyncVectorEnv[ObsType, ActType], ...]:
        """Divide the envs, to step some while a policy deals with the others ("double buffering").

        From then on only the parts are reset and stepped; calls reach all envs as before, and :meth:`close` closes the
        parts too. What an earlier split returned is of no use any more; ``split(1)`` makes this vector env whole again.

        Returns:
            Vector envs of their own (:class:`~remuda.gymnasium.part.AsyncVectorEnvPart`), each with an equal share of
            every worker's envs: ``env_ids`` says which.

        Raises:
            ClosedEnvironmentError: after :meth:`close`.
            ValueError: ``parts`` is not from 1 to the number of envs, or of vector envs with ``vector_size``.
            AlreadyPendingCallError: a call of this, or of a part, waits for its ``*_wait``.
        """
        from remuda.gymnasium.part import AsyncVectorEnvPart  # a subclass of this one

        self._assert_is_running()
        for envs in (self, *self._split_off):
            envs._assert_nothing_pending("split")
        if self._pool.pending:  # what timed out, or was given up with a part
            self._pool.discard()
        self._shares = self._pool.split(parts)
        if len(self._shares) == 1:
            self._begin(self._pool)
            return (self,)
        split_off = tuple(AsyncVectorEnvPart(self, share) for share in self._shares)
        self._split_off.update(split_off)
        return split_off

    # -- closing -----------------------------------------------------------------------------------------

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the envs and stop the workers; what :meth:`close` calls.

        Args:
            timeout: seconds for a pending call to end, and again for the envs to close. Then workers are
                killed. ``None``: as long as the call takes, and 10 seconds for the envs.
            terminate: do not wait: kill the workers; the envs are not closed.

        Raises:
            Exception: what an env raised in a call that was still pending, or in its ``close``. Everything is
                closed all the same.
        """
        try:
            if self._state is not IDLE:
                pending = self._state.value
                logger.warn(f"Calling `close` while waiting for a pending call to `{pending}` to complete.")
                if not terminate:
                    getattr(self, f"{pending}_wait")(timeout)
        except multiprocessing.TimeoutError:
            terminate = True
        finally:
            self._let_go()
            for part in self._split_off:
                part._let_go()
            self._close_pool(timeout, terminate)

    def _let_go(self) -> None:
        """Be closed, and hold no shared memory, which ends with the last view of it."""
        self.closed = True
        self._settle()
        self.observations, self.extras = deepcopy(self.observations), deepcopy(self.extras)

    def _close_pool(self, timeout: float | None, terminate: bool) -> None:
        try:
            self._pool.close(timeout=timeout, terminate=terminate)
        except EnvError as error:
            raise_original(error)

    # -- waiting -----------------------------------------------------------------------------------------

    def _receive(self, timeout: float | None) -> Results:
        """Wait for every env. The results that are in time are kept for the next attempt.

        Raises:
            TimeoutError: some were not in time.
        """
        batch = self._envs.recv(timeout=timeout)
        got: Results = batch
        if self._scattered or len(batch.env_ids) < self.num_envs:
            self._parts.append(batch)
            if sum(map(len, self._parts)) < self.num_envs:
                raise TimeoutError
            got = join(self._parts, self.single_observation_space, self._add_info)
        self.observations = got.obs
        if self._has_extras:
            self.extras = got.extras
        return got

    def _infos(self, got: Results) -> dict[str, Any]:
        return LazyInfos(got.stack_infos) if self.lazy_infos else got.stack_infos()
