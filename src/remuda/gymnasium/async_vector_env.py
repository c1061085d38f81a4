"""``AsyncVectorEnv``: Gymnasium's vector env on a remuda pool."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import Env
from gymnasium.core import ActType, ObsType
from gymnasium.spaces import Box

from remuda import FaceOptions, Pool, PoolOptions
from remuda._faces.pool_beneath import closed_on_error
from remuda._faces.translation import in_words_of
from remuda._faces.worker_defaults import set_worker_defaults
from remuda._keywords import gives_name_to, names_keywords
from remuda.gymnasium import arguments, spaces
from remuda.gymnasium.errors import translated
from remuda.gymnasium.part import AsyncVectorEnvPart
from remuda.gymnasium.releases import IS_0_29, AutoresetMode, VectorEnv

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11


@names_keywords(PoolOptions.__annotations__, arguments.REFUSED)
@gives_name_to(AsyncVectorEnvPart)
class AsyncVectorEnv(AsyncVectorEnvPart[ObsType, ActType], VectorEnv[ObsType, ActType, npt.NDArray[Any]]):
    """Steps many envs in parallel, in worker processes: :class:`gymnasium.vector.AsyncVectorEnv` on a pool.

    No env is ever built in the calling process: spaces, metadata and ``render_mode`` come from the workers.

    The arrays that :meth:`reset` and :meth:`step` return are writable views of memory shared with the workers. You
    lease them: no array is overwritten while you hold it or a view of it.

    Args:
        env_fns: factories of the envs; each is called in the worker of its env.
        shared_memory: ``True`` refuses spaces of other classes than Gymnasium's, as Gymnasium does; ``False`` accepts
            them. Observations travel through shared memory in both cases.
        copy: accepted, and without effect: you may keep the observations in both cases.
        context: the start method of workers: "forkserver", "spawn", "fork", or ``None``, as for a pool. Only
            workers of "fork" see methods and globals of modules that the program has patched.
        daemon: accepted, and without effect: workers may have child processes, and no worker outlives
            this process.
        worker: not supported: a worker function uses pipes and an error queue, which do not exist here.
        observation_mode: "same" (all observation spaces are equal), "different" (they differ in their
            bounds), or (batched space, single space).
        autoreset_mode: when a finished env is reset; see :class:`gymnasium.vector.AutoresetMode`. ``None``:
            "NextStep", or "SameStep" with ``infos="0.29"``.
        max_concurrency: the largest number of workers that run ``reset`` or ``step`` at once; calls are not limited.
        lazy_infos: return infos that are gathered when they are first read (a subclass of dict), instead of a
            plain dict.
        infos: "0.29" gives scripts for Gymnasium 0.29 what they expect: an env is reset in the step that ends its
            episode, ``infos["final_observation"]`` and ``infos["final_info"]`` are arrays of the terminal observations
            and info dicts (``None`` for the other envs), ``infos["_final_observation"]`` and ``infos["_final_info"]``
            are their masks, and dicts and arrays in infos are objects in an array (num_envs,). ``None``: the
            conventions of the installed Gymnasium.
        **options: the other options of :class:`remuda.PoolOptions`: ``num_workers``, ``faults``, ``spares`` and so on.
            With ``faults="restart"`` a fault truncates the episode, ``infos["fault"]`` reports the fault, and the env
            is rebuilt. With ``faults="resume"`` it plays its episode again, and nothing shows the fault.
            With ``seeding="per_episode"`` ``single_action_space`` is seeded too, but not ``action_space``.
            With ``crash_dir`` the cause of an env's exception names the crash record. ``name`` is
            ``Worker<AsyncVectorEnv>``.

    Attributes:
        extras: the columns of ``extras=`` by name, of the latest reset or step: arrays with a row for each env,
            leased like observations. Empty before the first reset.
        reward_space: the space of the rewards of one env, a Box of shape (k,) without bounds, if they are vectors;
            otherwise there is no such attribute. MO-Gymnasium's vector wrappers read it.

    Raises:
        RuntimeError: the envs' spaces disagree.
        ValueError: ``observation_mode``, ``autoreset_mode``, ``infos``, ``max_concurrency`` or ``context`` is invalid,
            or a space is custom although ``shared_memory=True``.
        NotImplementedError: ``worker`` is a function.
        StartTimeoutError: an env took longer to build than ``start_timeout``.
        TypeError: an option is unknown, or has another name here.
        WorkerDiedError: a worker died while it built its envs.
        Exception: an env factory raised it.
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
        autoreset_mode: str | AutoresetMode | None = None,
        max_concurrency: int | None = None,
        *,
        lazy_infos: bool = False,
        infos: Literal["0.29"] | None = None,
        **options: Unpack[FaceOptions],
    ) -> None:
        self.env_fns = list(env_fns) if isinstance(env_fns, Iterator) else env_fns
        self.shared_memory = shared_memory
        self.copy = copy
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.observation_mode = observation_mode
        self._has_old_infos = arguments.is_old(infos) or IS_0_29
        default = AutoresetMode.SAME_STEP if self._has_old_infos else AutoresetMode.NEXT_STEP
        self.autoreset_mode = default if autoreset_mode is None else AutoresetMode(autoreset_mode)
        if self._has_old_infos and self.autoreset_mode is not default:
            raise ValueError(
                f"expected no autoreset_mode, or 'SameStep', with infos='0.29', got {self.autoreset_mode.value!r}: "
                "Gymnasium 0.29 resets an env in the step that ends its episode"
            )
        self.max_concurrency = max_concurrency
        self.lazy_infos = lazy_infos
        if worker is not None:
            raise NotImplementedError(
                "expected worker=None, because remuda's workers have no pipes and no queue. Wrap the env in its env_fn "
                "(gymnasium.Wrapper), pass autoreset_mode=, call() a method of a wrapper, or use "
                "gymnasium.vector.AsyncVectorEnv, which takes the worker function."
            )
        spaces.check_observation_mode(observation_mode)

        set_worker_defaults(options, f"Worker<{type(self).__name__}>")
        self._has_extras = bool(options.get("extras"))
        self._pool = translated(in_words_of(self._words)(Pool))(
            self.env_fns,
            max_concurrency=max_concurrency,
            start_method=context,  # type: ignore[arg-type]  # the pool checks it
            autoreset=self.autoreset_mode,
            observation_space=observation_mode[1] if isinstance(observation_mode, tuple) else None,
            **options,
        )
        with closed_on_error(self._pool):
            self._adopt(self._pool)
        self._begin(self._pool, self._pool)

    def _adopt(self, pool: Pool) -> None:
        """Sets the vector env's spaces to those that the workers reported, and checks that the envs agree on them."""
        self.num_envs = pool.num_envs
        self.metadata = {**pool.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = pool.render_mode
        if shape := pool._engine.layout.reward_shape:
            self.reward_space = Box(-np.inf, np.inf, shape, np.float64)
        self._choose_spaces(pool)
        spaces.check_action_spaces(self.single_action_space, pool.action_spaces)
        single = self.single_observation_space
        if self.shared_memory and spaces.is_custom(single):
            raise ValueError(
                "expected an observation space of Gymnasium's own classes under shared_memory=True, "
                f"got {single}: pass shared_memory=False, which carries any space."
            )

    def _choose_spaces(self, pool: Pool) -> None:
        mode, reported = self.observation_mode, pool.observation_spaces
        batched, single = mode if isinstance(mode, tuple) else (None, reported[0])
        self.single_observation_space, self.single_action_space = single, pool.single_action_space
        self._lay_out(reported, batched)
        spaces.check_observation_spaces(mode, single, reported)

    def split(self, parts: int = 2) -> tuple[AsyncVectorEnvPart[ObsType, ActType], ...]:
        split_off = self._split(parts, lambda share: AsyncVectorEnvPart(self, share))
        if not split_off:
            self.extras = {}
        return split_off or (self,)

    # -- closing -----------------------------------------------------------------------------------------

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the envs and stop the workers; :meth:`close` calls this method.

        Args:
            timeout: the seconds to wait for a pending call, and again for the envs to close. Then workers are
                killed. ``None``: no limit for the call, and 10 seconds for the envs.
            terminate: kill the workers at once; the envs are not closed.

        Raises:
            Exception: an env raised it in a pending call, or in its ``close``. Everything is closed nevertheless.
        """
        try:
            self._finish_pending(timeout, terminate)
        except multiprocessing.TimeoutError:
            terminate = True
        finally:
            self._let_go()
            translated(self._pool.close)(timeout=timeout, terminate=terminate)
