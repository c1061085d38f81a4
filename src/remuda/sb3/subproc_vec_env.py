"""``SubprocVecEnv``: Stable-Baselines3's vector env on a remuda pool."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import Env
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from remuda import Batch, FaceOptions, Part, Pool, PoolOptions, RemudaError, Rollout, StateError
from remuda._faces.close_errors import log_close_errors
from remuda._faces.extras import functions_of, with_functions
from remuda._faces.layout import one_process_an_env
from remuda._faces.pools import HasPool
from remuda._keywords import names_keywords
from remuda.sb3 import worker
from remuda.sb3.arguments import REFUSED, Indices, batch_actions, check_start_method, come_apart, env_ids, factories
from remuda.sb3.errors import translated
from remuda.sb3.extras import Extras
from remuda.sb3.results import read_step
from remuda.sb3.suggested_code import SUGGESTED_CODE

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11

    from remuda import ColumnType


OPEN_ENVS: weakref.WeakSet[SubprocVecEnv] = weakref.WeakSet()
"""All of this process, and perhaps some that are closed."""


@names_keywords(PoolOptions.__annotations__, REFUSED)
class SubprocVecEnv(HasPool, VecEnv):
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

    _steps_at_once = True  # unless a subclass has its own of the two methods that `step` stands for

    _suggested_code = SUGGESTED_CODE

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls._steps_at_once = cls.step_async is SubprocVecEnv.step_async and cls.step_wait is SubprocVecEnv.step_wait

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
        self.waiting = self.closed = False
        self._under_way = False  # perhaps: a step or reset that has been sent, and not received as a whole
        self.keep_options = keep_options
        options["name"] = options.get("name") or f"Worker<{type(self).__name__}>"
        one_process_an_env(options)
        options.setdefault("preload", ("stable_baselines3",))
        extras = {
            name: functools.partial(worker.compute, one) for name, one in functions_of(options.get("extras")).items()
        }
        self._extras = Extras(extras)
        options["extras"] = with_functions(options.get("extras"), extras)
        self._pool = Pool(
            factories(env_fns, worker.build),
            start_method=check_start_method(start_method),
            autoreset="same_step",
            max_concurrency=max_concurrency,
            observation_space=observation_space,
            **options,
        )
        try:
            self._adopt(self._pool)
        except BaseException:
            self._pool.close(terminate=True)
            raise
        OPEN_ENVS.add(self)
        self._shares = (self._pool,)
        self._split_off: weakref.WeakSet[SubprocVecEnv] = weakref.WeakSet()

    def _adopt(self, pool: Pool) -> None:
        """Take over what the workers reported."""
        self._envs: Part = pool  # what is stepped and called: all of the pool's
        super().__init__(pool.num_envs, pool.single_observation_space, pool.single_action_space)
        self._batches_actions = come_apart(self.action_space)
        if "render_fps" in pool.metadata:  # where recorders of videos look for it
            self.metadata["render_fps"] = pool.metadata["render_fps"]

    def has_written(self, obs: npt.NDArray[Any]) -> bool:
        """Whether an array of observations lies in the memory that these envs write to.

        Args:
            obs: the array.
        """
        return not self.closed and self._pool.owns(obs)

    @property
    def extras(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of ``extras=``, by name, of the latest reset or step: views, as observations are."""
        return self._extras.columns

    @property
    def processes(self) -> list[Any]:
        """The workers; each has ``name``, ``pid``, ``exitcode``, ``is_alive()`` and its envs' ``env_ids``."""
        return list(self._pool.workers)

    # -- reset and step ----------------------------------------------------------------------------------

    @translated
    def reset(self) -> VecEnvObs:
        """Reset all envs, with the seeds of :meth:`seed` and the options of :meth:`set_options`, once.

        A step that is still under way is waited for, and dropped. The infos are in ``reset_infos``.

        Returns:
            The observations: an array of ``num_envs`` rows, or a dict (in the order of the space) or tuple of such.

        Raises:
            EnvError: an env raised.
            WorkerDiedError: a worker process died. (EnvTimeoutError is one of its kinds.)
            RestartLimitError: an env failed more often than ``faults`` bears.
            BrokenPoolError: an env was lost to an earlier fault.
            ClosedError: after :meth:`close`.
        """
        self._check_whole()
        self._drop_what_is_under_way()
        self._under_way = True
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        options = [one or None for one in self._options] if any(self._options) else None
        batch = self._envs.reset(seed=seeds, options=options)
        self._under_way = False
        if self._extras.functions:
            self._extras.note(batch, self._envs.last_sent)
        self.reset_infos = tuple(batch.infos)  # type: ignore[assignment]  # a tuple, as the original's
        self._reset_seeds()
        self._reset_options()
        return batch.obs  # type: ignore[no-any-return]

    def step(self, actions: Any) -> VecEnvStepReturn:
        """Step each env: takes ``actions`` as :meth:`step_async`, returns what :meth:`step_wait` does, and
        raises what both do."""
        try:
            if self._under_way or not self._steps_at_once:
                self.step_async(actions)
                return self.step_wait()
            if self._batches_actions:
                actions = batch_actions(self.action_space, actions, self.num_envs)
            self._under_way = True
            try:
                batch = self._envs.step(actions)
            except Exception:
                raise
            except BaseException:  # an interruption, such as Ctrl-C: what was sent may still be waited for
                self.waiting = self._envs.pending > 0
                raise
            self._under_way = False
            return self._read(batch)
        except RemudaError as error:  # as `translated` has it, without its call
            translated.raise_for(error)

    @translated
    def step_async(self, actions: Any) -> None:
        """Send each env its action, and return at once; :meth:`step_wait` has the results.

        Args:
            actions: one for each env: an array with a row for each, or a sequence. They reach the envs in the dtype
                of the action space.

        Raises:
            remuda.InvalidActionError: a ValueError: another number of actions than envs, or another shape, dtype or
                range. Nothing was sent.
            remuda.StateError: a RuntimeError: a step is under way already, or an env has not been reset, or not since
                it raised. Nothing was sent.
            BrokenPoolError: an env was lost to an earlier fault.
            ClosedError: after :meth:`close`.
        """
        if self._under_way and not self.waiting:
            self._drop_what_is_under_way()
        if self._batches_actions:
            actions = batch_actions(self.action_space, actions, self.num_envs)
        self._under_way = True
        self._envs.send(actions)
        self.waiting = True

    @translated
    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the results of :meth:`step_async`. An env whose episode is over has been reset.

        Returns:
            (observations, rewards, dones, infos): observations as of :meth:`reset`; two arrays (num_envs,), the first
            of the dtype of the envs' own rewards, the second of bool; a tuple of dicts. Each dict has
            ``TimeLimit.truncated``; where an episode has ended, also ``terminal_observation``, while the observation
            is the next episode's first, and the reset's info is in ``reset_infos``.

        Raises:
            EnvError: an env raised. The others go on after a :meth:`reset`, and so does this one.
            WorkerDiedError: a worker process died. (EnvTimeoutError is one of its kinds.)
            RestartLimitError: an env failed more often than ``faults`` bears.
            remuda.StateError: a RuntimeError: no step is under way.
            ClosedError: after :meth:`close`.
        """
        try:
            batch = self._envs.recv()
        except Exception:
            self.waiting = False
            raise
        self.waiting = self._under_way = False  # not after an interruption, such as Ctrl-C: it may be waited for again
        return self._read(batch)

    def _read(self, batch: Batch) -> VecEnvStepReturn:
        if self._extras.functions:
            self._extras.note(batch, self._envs.last_sent)
        rewards, dones, infos, self.reset_infos = read_step(batch, self.reset_infos)  # type: ignore[assignment]
        return batch.obs, rewards, dones, infos  # type: ignore[return-value]

    def _drop_what_is_under_way(self) -> None:
        """A step that nobody will wait for, or what an error or an interruption has left of one, or of a reset."""
        if self._envs.pending:
            self._drop()
        self.waiting = self._under_way = False

    # -- rollouts ----------------------------------------------------------------------------------------

    @translated
    def rollout(self, steps: int, columns: Mapping[str, ColumnType] | None = None, parts: int = 1) -> Rollout:
        """Have the next ``steps`` steps written where a learner reads them; as :meth:`remuda.Pool.rollout`.

        Every :meth:`step` goes there too, until the rollout is full or the envs are reset.
        :class:`remuda.sb3.RolloutBuffer` does this for Stable-Baselines3's own algorithms.

        Args:
            steps: from 1 up.
            columns: what will be kept beside: names, and for each a dtype or (dtype, shape).
            parts: step the envs in so many parts, each while the policy deals with the others.

        Returns:
            A :class:`remuda.Rollout`, to be iterated over. Its names are those of the pool.

        Raises:
            ValueError, TypeError: bad arguments, or a space with parts that have no column.
            MemoryError: there is not that much memory.
            remuda.StateError: a RuntimeError: a step is under way, or an env must be reset first.
            EnvError, WorkerDiedError: what kept envs from showing their observations.
            ClosedError: after :meth:`close`.
        """
        if self._under_way and not self.waiting:
            self._drop_what_is_under_way()
        return self._envs.rollout(steps, columns, parts)

    # -- for the next reset ------------------------------------------------------------------------------

    @translated
    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Keep options for the next :meth:`reset`; with ``keep_options=True`` for every reset from now on.

        Args:
            options: for all envs alike, or a list with those of each env; ``None``: none. They are copied.

        Raises:
            ValueError: with ``keep_options=True``: not one for each env, or one for each where there are spares.
            BrokenPoolError, ClosedError: with ``keep_options=True``: they can never come to hold.
        """
        super().set_options(options)
        if self.keep_options:
            standing = options if options is None or isinstance(options, dict) else [one or None for one in options]
            self._envs.set_reset_options(standing or None)

    # -- calls -------------------------------------------------------------------------------------------

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """Each env's picture; ``None`` for each, and a warning, where ``render_mode`` is not "rgb_array". Raises as
        :meth:`env_method`."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"expected the render mode 'rgb_array' of envs that are asked for images, got {self.render_mode!r}",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self.env_method("render")

    def has_attr(self, attr_name: str) -> bool:
        """Whether every env, or a wrapper around it, has the attribute ``attr_name``, or ``extras=`` stand for it.
        Raises as :meth:`get_attr`, but for an env that has none."""
        if self._extras.name_of(attr_name) is not None:
            return True
        return all(self._apply(worker.has_attribute, attr_name))

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return each env's attribute, looked up from the outermost wrapper inwards, or the column in its place.

        Args:
            attr_name: its name.
            indices: of the envs to ask: an int, some ints, or ``None`` for all.

        Raises:
            EnvError: an env has no such attribute, or one that cannot be pickled.
            IndexError: there is no such env.
            WorkerDiedError, BrokenPoolError, ClosedError: it cannot answer.
        """
        if (name := self._extras.name_of(attr_name)) is not None:
            return self._computed(name, indices)
        return self._apply(worker.get_attribute, attr_name, indices=indices)

    @translated
    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of each env, on its outermost wrapper, and again on that of an env that is built anew.

        Args:
            attr_name: its name.
            value: the same for all.
            indices: of the envs: an int, some ints, or ``None`` for all, spares too.

        Raises: as :meth:`get_attr`.
        """
        self._envs.apply_async(
            worker.set_attribute,
            (attr_name, value),
            env_ids=None if indices is None else sorted(set(self._env_ids(indices))),
            with_spares=indices is None,
            about=("attribute", attr_name),
        ).result()

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each env, looked up from the outermost wrapper inwards.

        Where ``extras=`` have a column of that name (of ``"action_mask"`` for ``"action_masks"``, too), a call without
        arguments returns its rows, and no worker is asked.

        Args:
            method_name: its name.
            *method_args: for the method.
            indices: of the envs: an int, some ints, or ``None`` for all.
            **method_kwargs: for the method.

        Returns:
            What each env's method returned.

        Raises: as :meth:`get_attr`, and EnvError for what the method raised; its episode goes on.
        """
        name = None if method_args or method_kwargs else self._extras.name_of(method_name)
        if name is not None:
            return self._computed(name, indices)
        return self._apply(worker.call_method, method_name, method_args, method_kwargs, indices=indices)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Whether each env (of ``indices``) is in a wrapper of ``wrapper_class``. Raises as :meth:`get_attr`."""
        return self._apply(worker.is_wrapped, wrapper_class, indices=indices)

    def _computed(self, name: str, indices: Indices) -> list[Any]:
        """A column of ``extras=``; asked of the envs where something has been done to them since it was computed."""
        if not self._under_way and not self.closed:
            rows = self._extras.rows(name, env_ids(indices, self.num_envs), self._envs.last_sent)
            if rows is not None:
                return rows
        return self._apply(self._extras.functions[name], indices=indices)

    @translated
    def replace(self, indices: Indices, env_fns: Sequence[Callable[[], Env[Any, Any]]]) -> None:
        """Put other envs in the place of some, in their workers; see :meth:`remuda.Pool.replace`. Then :meth:`reset`.

        What :meth:`set_attr` has set is set again on them. The spaces of the vector env stay as they are.

        Args:
            indices: of the envs: an int, some ints, or ``None`` for all.
            env_fns: a factory for each of them, in their order.

        Raises:
            remuda.StateError: a RuntimeError: a step is under way.
            ValueError, TypeError: arguments of another form; there are spares.
            remuda.SpaceMismatchError: their spaces do not fit.
            EnvError: a factory raised; its exception is the cause. The old envs go on, or if they render, begin again.
            IndexError, WorkerDiedError, BrokenPoolError, ClosedError: as :meth:`get_attr`.
        """
        if self.waiting:
            raise StateError("expected no step under way when envs are replaced; call step_wait first")
        if self._under_way:
            self._drop_what_is_under_way()
        self._envs.replace(self._env_ids(indices), factories(env_fns, worker.build))

    @translated
    def _apply(self, function: Callable[..., Any], *args: Any, indices: Indices = None) -> list[Any]:
        ids = self._env_ids(indices)
        if len(set(ids)) < len(ids):  # one that is named twice is asked twice
            return [self._envs.apply(function, *args, env_ids=[env_id])[0] for env_id in ids]
        return self._envs.apply(function, *args, env_ids=None if indices is None else ids)

    def _env_ids(self, indices: Indices) -> list[int]:
        """As the pool counts them."""
        return [int(self._envs.env_ids[i]) for i in env_ids(indices, self.num_envs)]

    # -- halves ------------------------------------------------------------------------------------------

    @translated
    def split(self, parts: int = 2) -> tuple[SubprocVecEnv, ...]:
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
        from remuda.sb3.part import SubprocVecEnvPart  # a subclass of this one

        for envs in (self, *self._split_off):
            if envs.waiting:
                raise StateError("expected no step under way when a vector env is split; call step_wait first")
        if self._pool.pending:  # what an error or an interruption has left, or was given up with a part
            self._pool.discard()
        self._shares, self._under_way = self._pool.split(parts), False
        if len(self._shares) == 1:
            return (self,)
        split_off = tuple(SubprocVecEnvPart(self, share) for share in self._shares)
        self._split_off.update(split_off)
        self._reset_seeds()
        self._reset_options()
        return split_off

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
            envs.closed, envs.waiting = True, False
            envs._extras.let_go()
        with log_close_errors():
            self._pool.close()
