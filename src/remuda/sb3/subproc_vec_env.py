"""``SubprocVecEnv``: Stable-Baselines3's vector env on a remuda pool."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy.typing as npt
from gymnasium import Env

from remuda import FaceOptions, Pool, PoolOptions, StateError
from remuda._faces.closing import closed_on_error, log_close_errors
from remuda._faces.stats import SuggestedCode
from remuda._faces.worker_defaults import set_worker_defaults
from remuda._keywords import names_keywords
from remuda.sb3 import worker
from remuda.sb3.arguments import REFUSED, check_start_method, factories
from remuda.sb3.errors import translated
from remuda.sb3.extras import functions_of, with_functions
from remuda.sb3.part import SubprocVecEnvPart

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11


OPEN_ENVS: weakref.WeakSet[SubprocVecEnv] = weakref.WeakSet()
"""All of this process, and perhaps some that are closed."""


@names_keywords(PoolOptions.__annotations__, REFUSED)
class SubprocVecEnv(SubprocVecEnvPart):
    """Steps many envs in parallel, in worker processes: SB3's ``SubprocVecEnv`` on a pool.

    ``infos`` is a tuple of plain dicts, rewards and dones are arrays of your own. Observations are views of memory
    shared with the workers, leased to you: nothing overwrites them while you hold them or a view of them, and you may
    write to them.

    Args:
        env_fns: make the envs, each in its worker. Envs of old Gym are put into SB3's compatibility wrapper.
        start_method: how workers start: "forkserver" (``None`` means that), "spawn" or "fork".
        keep_options: what :meth:`set_options` is given stays in force for all later resets, those after the end of an
            episode included, instead of the next :meth:`reset` alone.
        max_concurrency, observation_space: as in :class:`remuda.PoolOptions`.
        **options: the others of it: ``num_workers``, ``faults``, ``spares`` and so on. Under ``faults="restart"`` an
            episode that is cut off ends with ``infos[i]["fault"]`` and ``TimeLimit.truncated``, and the env comes back.
            With ``seeding="per_episode"`` seeds are told as ``reset_infos[i]["episode_seed"]``. ``num_envs`` does not
            count ``spares``. ``preload`` is SB3, because factories that wrap an env in ``Monitor`` need it, and it
            needs PyTorch. ``name`` is that of this class.

    Attributes:
        num_envs: how many.
        observation_space, action_space: of one env, the first.
        extras: the columns of ``extras=``, by name: arrays with a row for each env, of the latest reset or step.
        reset_infos: what each env's latest ``reset`` told: a tuple of ``num_envs`` dicts.
        render_mode: of all envs.
        metadata: ``render_modes``, and the envs' ``render_fps`` if they have one.
        waiting: whether :meth:`step_async` has been called and :meth:`step_wait` has not.
        closed: whether :meth:`close` has been called.

    Raises:
        ValueError: no envs, a ``start_method`` that there is not, or spaces that do not fit into the same rows.
        EnvError: a factory raised; its exception is the cause.
        WorkerDiedError: a worker died while it built its envs.
        remuda.StartTimeoutError: an env took longer to build than ``start_timeout``.
        TypeError: a factory that cannot be pickled, or an option that there is not.
    """

    _suggested_code = SuggestedCode(
        make="envs = remuda.sb3.SubprocVecEnv({env_fns}, {options})",
        spare="envs = remuda.sb3.SubprocVecEnv(env_fns + env_fns[:1] * {spares}, spares={spares}, {options})",
        split="""\
halves = envs.split(2)
for half in halves:
    half.step_async(policy(half.reset()))
while True:
    for half in halves:
        obs, rewards, dones, infos = half.step_wait()
        half.step_async(policy(obs))""",
        refused=REFUSED,
    )

    @translated
    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        start_method: str | None = None,
        *,
        keep_options: bool = False,
        max_concurrency: int | None = None,
        observation_space: gymnasium.Space[Any] | None = None,
        **options: Unpack[FaceOptions],
    ) -> None:
        set_worker_defaults(options, f"Worker<{type(self).__name__}>")
        options.setdefault("preload", ("stable_baselines3",))
        extras = {
            name: functools.partial(worker.compute, one) for name, one in functions_of(options.get("extras")).items()
        }
        options["extras"] = with_functions(options.get("extras"), extras)
        pool = Pool(
            factories(env_fns, worker.build),
            start_method=check_start_method(start_method),
            autoreset="same_step",
            max_concurrency=max_concurrency,
            observation_space=observation_space,
            **options,
        )
        with closed_on_error(pool):
            self._adopt(pool, pool, extras, keep_options=keep_options)
        if "render_fps" in pool.metadata:  # where recorders of videos look for it
            self.metadata["render_fps"] = pool.metadata["render_fps"]
        OPEN_ENVS.add(self)

    def has_written(self, obs: npt.NDArray[Any]) -> bool:
        """Whether an array of observations lies in the memory that these envs write to.

        Args:
            obs: the array.
        """
        return not self.closed and self._pool.owns(obs)

    # -- halves ------------------------------------------------------------------------------------------

    @translated
    def split(self, parts: int = 2) -> tuple[SubprocVecEnvPart, ...]:
        """Divide the envs, to step some while a policy deals with the others ("double buffering").

        From then on only the parts are reset and stepped; calls reach all envs as before, and :meth:`close` closes the
        parts too. Seeds and options that wait for the next :meth:`reset` go over to the parts. What an earlier split
        returned is of no use any more; ``split(1)`` makes this vector env whole again.

        Returns:
            Vector envs of their own (:class:`~remuda.sb3.part.SubprocVecEnvPart`), each with an equal share of every
            worker's envs: ``env_ids`` says which.

        Raises:
            ClosedError: after :meth:`close`.
            ValueError: ``parts`` is not from 1 to ``num_envs``.
            remuda.StateError: a RuntimeError: a step of this, or of a part, is under way.
        """
        for envs in (self, *self._split_off):
            if envs.waiting:
                raise StateError("expected no step under way when a vector env is split; call step_wait first")
        split_off = self._split_pool(parts, lambda share: SubprocVecEnvPart(self, share))
        if split_off:
            self._reset_seeds()
            self._reset_options()
        return split_off or (self,)

    # -- closing -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the envs and stop the workers, after the step that is under way. Closing again does nothing.

        What an env raises in its ``close`` is logged, and not raised. Envs get 10 seconds, then workers are killed.

        Raises:
            remuda.CloseTimeoutError: a worker would not die; everything else was released.
        """
        if self.closed:
            return
        for envs in (self, *self._split_off):
            envs._let_go()
        with log_close_errors():
            self._pool.close()
