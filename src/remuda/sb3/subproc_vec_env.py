"""``SubprocVecEnv``: Stable-Baselines3's vector env on a remuda pool, and the parts that it can be split into."""

from __future__ import annotations

import multiprocessing
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import Env, spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from remuda import Batch, ClosedError, FaceOptions, Part, Pool, PoolOptions, RemudaError, StateError
from remuda._faces.closing import closed_on_error, log_close_errors
from remuda._faces.stats import vector_env_code
from remuda._faces.vector_env import IDLE, STEPPING, PooledVectorEnv
from remuda._faces.worker_defaults import set_worker_defaults
from remuda._keywords import names_keywords
from remuda.sb3 import worker
from remuda.sb3.arguments import Indices, batch_actions, extras_of_hosted, hosting, positions
from remuda.sb3.errors import translated
from remuda.sb3.results import read_step

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in `typing` since Python 3.11

REFUSED = {
    "autoreset": "Stable-Baselines3 has an env reset within the step that ends its episode",
    "resets_ahead": "Stable-Baselines3 has an env reset within the step that ends its episode; use spares=",
    "vector_size": "Stable-Baselines3 asks each env for its attributes and wrappers, unlike those in a vector env",
}
"""Options of the pool that make no sense here, and why."""

OPEN_ENVS: weakref.WeakSet[SubprocVecEnv] = weakref.WeakSet()
"""All of this process, and perhaps some that are closed."""

_ALIASES = {"action_masks": "action_mask"}  # sb3-contrib's name for the masks of actions, and that of most others


class SubprocVecEnvPart(PooledVectorEnv, VecEnv):
    """Some of a vector env's envs, reset, stepped and called apart from the others; `SubprocVecEnv.split` makes it.

    Everything is counted from 0: env ``i`` here is env ``env_ids[i]`` of the whole. But :meth:`seed` gives that one
    ``seed + env_ids[i]``, so that parts with the same seed together begin as the whole does.

    Attributes:
        env_ids: (num_envs,) int64, ascending: which envs of the whole these are.
        whole: the vector env that was split. It owns the workers; closing it closes this.
    """

    _suggested_code = vector_env_code("remuda.sb3.SubprocVecEnv", "obs", "obs, rewards, dones, infos", refused=REFUSED)
    _translation = translated

    def __init__(self, whole: SubprocVecEnvPart, envs: Part) -> None:
        self.whole = whole
        self._adopt(whole._pool, envs, whole._extras_functions, keep_options=whole.keep_options)
        self.metadata, ids = dict(whole.metadata), envs.env_ids.tolist()
        self.reset_infos = tuple(whole.reset_infos[i] for i in ids)  # type: ignore[assignment]  # as the whole's
        self._seeds = [whole._seeds[i] for i in ids]
        self._options = [whole._options[i] for i in ids]

    def _adopt(self, pool: Pool, envs: Part, extras: Mapping[str, Callable[[Any], Any]], *, keep_options: bool) -> None:
        """Takes over envs of a running pool, and the functions that compute its `extras`, by name."""
        self._begin(pool, envs)
        self.keep_options = keep_options
        self._extras_functions = extras
        self._extras_sent = 0  # as `Part.last_sent` was when `extras` were computed
        VecEnv.__init__(self, envs.num_envs, pool.single_observation_space, pool.single_action_space)
        self._batches_actions = isinstance(self.action_space, (spaces.Dict, spaces.Tuple))

    @property
    def waiting(self) -> bool:
        """Whether :meth:`step_async` has been called and :meth:`step_wait` has not."""
        return self._state is STEPPING

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
            RestartLimitError: an env failed more often than ``faults`` allows.
            BrokenPoolError: an env was lost to an earlier fault.
            ClosedError: after :meth:`close`.
        """
        self._make_way_for_reset()
        self._has_leftovers = True  # until all results are here
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        options = [one or None for one in self._options] if any(self._options) else None
        batch = self._envs.reset(seed=seeds, options=options)
        self._has_leftovers = False
        if self._extras_functions:
            self.extras, self._extras_sent = batch.extras, self._envs.last_sent
        self.reset_infos = tuple(batch.infos)  # type: ignore[assignment]  # a tuple, as the original's
        self._reset_seeds()
        self._reset_options()
        return batch.obs  # type: ignore[no-any-return]

    def step(self, actions: Any) -> VecEnvStepReturn:
        """Step each env: takes ``actions`` as :meth:`step_async`, returns what :meth:`step_wait` does, and
        raises what both do."""
        try:
            if self._state is not IDLE or self._has_leftovers or not self._steps_at_once:
                self.step_async(actions)
                return self.step_wait()
            if self._batches_actions:
                actions = batch_actions(self.action_space, actions, self.num_envs)
            self._has_leftovers = True  # until all results are here
            try:
                batch = self._envs.step(actions)
            except Exception:
                raise
            except BaseException:  # an interruption, such as Ctrl-C: what was sent may still be waited for
                self._state = STEPPING if self._envs.pending else IDLE
                raise
            self._has_leftovers = False
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
            BrokenPoolError, ClosedError: as :meth:`reset`.
        """
        self._drop_leftovers()
        if self._batches_actions:
            actions = batch_actions(self.action_space, actions, self.num_envs)
        self._envs.send(actions)
        self._state = STEPPING

    @translated
    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the results of :meth:`step_async`. An env at the end of its episode has been reset.

        Returns:
            (observations, rewards, dones, infos): observations as of :meth:`reset`; two arrays (num_envs,), the first
            of the dtype of the envs' own rewards, the second of bool; a tuple of dicts. Each dict has
            ``TimeLimit.truncated``; where an episode has ended, also ``terminal_observation``, while the observation
            is the next episode's first, and the reset's info is in ``reset_infos``.

        Raises:
            EnvError: an env raised. The others go on after a :meth:`reset`, and so does this one.
            remuda.StateError: a RuntimeError: no step is under way.
            WorkerDiedError, RestartLimitError, ClosedError: as :meth:`reset`.
        """
        return self._read(self._wait(STEPPING, lambda _: self._envs.recv(), None))

    def _read(self, batch: Batch) -> VecEnvStepReturn:
        if self._extras_functions:
            self.extras, self._extras_sent = batch.extras, self._envs.last_sent
        rewards, dones, infos, self.reset_infos = read_step(batch, self.reset_infos)  # type: ignore[assignment]
        return batch.obs, rewards, dones, infos  # type: ignore[return-value]

    def _check_idle(self, method: str) -> None:
        if self.waiting:
            raise StateError(f"expected no step under way in {method}(), got one in flight; call step_wait first")

    # -- for the next reset ------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next :meth:`reset`: env ``i`` with ``seed + env_ids[i]``; ``None``: with one drawn at random.

        Returns:
            The seed of each env, in order.
        """
        first = super().seed(seed)[0]
        assert first is not None  # one was drawn where none was given
        self._seeds = [first + env_id for env_id in self.env_ids.tolist()]
        return self._seeds

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
        """Whether every env, or a wrapper around it, has the attribute ``attr_name``, or ``extras=`` a column for it.
        Raises as :meth:`get_attr`, but not for an env that has none."""
        return self._column(attr_name) is not None or all(self._apply(worker.has_attribute, attr_name))

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return each env's attribute, looked up from the outermost wrapper inwards, or the column in its place.

        Args:
            attr_name: its name.
            indices: the envs: an int, some ints, or ``None`` for all.

        Raises:
            EnvError: an env has no such attribute, or one that cannot be pickled.
            IndexError: there is no such env.
            WorkerDiedError, BrokenPoolError, ClosedError: it cannot answer.
        """
        if (column := self._column(attr_name)) is not None:
            return self._rows(column, indices)
        return self._apply(worker.get_attribute, attr_name, indices=indices)

    @translated
    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of each env, on its outermost wrapper, and again on that of an env that is rebuilt.

        Args:
            attr_name: its name.
            value: the same for all.
            indices: as of :meth:`get_attr`; ``None`` includes spares.

        Raises: as :meth:`get_attr`.
        """
        self._envs.apply_async(
            worker.set_attribute,
            (attr_name, value),
            env_ids=None if indices is None else sorted(set(self._ids_in_pool(indices))),
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
            **method_kwargs: for the method.
            indices: as of :meth:`get_attr`.

        Returns:
            What each env's method returned.

        Raises: as :meth:`get_attr`, and EnvError for what the method raised; its episode goes on.
        """
        column = None if method_args or method_kwargs else self._column(method_name)
        if column is not None:
            return self._rows(column, indices)
        return self._apply(worker.call_method, method_name, method_args, method_kwargs, indices=indices)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Whether each env (of ``indices``) is in a wrapper of ``wrapper_class``. Raises as :meth:`get_attr`."""
        return self._apply(worker.is_wrapped, wrapper_class, indices=indices)

    @translated
    def replace(self, indices: Indices, env_fns: Sequence[Callable[[], Env[Any, Any]]]) -> None:
        """Put other envs in the place of some, in their workers; see :meth:`remuda.Pool.replace`. Then :meth:`reset`.

        What :meth:`set_attr` has set is set again on them. The spaces of the vector env stay as they are.

        Args:
            indices: as of :meth:`get_attr`.
            env_fns: a factory for each of them, in their order.

        Raises:
            remuda.StateError: a RuntimeError: a step is under way.
            ValueError, TypeError: arguments of another form; there are spares.
            remuda.SpaceMismatchError: their spaces do not fit.
            EnvError: a factory raised; its exception is the cause. The old envs go on, or if they render, begin again.
            IndexError, WorkerDiedError, BrokenPoolError, ClosedError: as :meth:`get_attr`.
        """
        self._check_idle("replace")
        self._drop_leftovers()
        self._envs.replace(self._ids_in_pool(indices), hosting(env_fns))

    def _column(self, name: str) -> str | None:
        """Returns the column of ``extras=`` in the place of an attribute or method; None: there is no such column."""
        return next((one for one in (name, _ALIASES.get(name)) if one in self._extras_functions), None)

    def _rows(self, column: str, indices: Indices) -> list[Any]:
        """Returns copies of a column's rows; computed by the envs if they were sent anything since it was filled."""
        may_read = self.extras and not (self.closed or self.waiting or self._has_leftovers)
        if may_read and self._extras_sent == self._envs.last_sent:
            return [self.extras[column][env].copy() for env in positions(indices, self.num_envs)]
        return self._apply(self._extras_functions[column], indices=indices)

    @translated
    def _apply(self, function: Callable[..., Any], *args: Any, indices: Indices = None) -> list[Any]:
        ids = self._ids_in_pool(indices)
        if len(set(ids)) < len(ids):  # an env that is named twice is called twice
            return [self._envs.apply(function, *args, env_ids=[env_id])[0] for env_id in ids]
        return self._envs.apply(function, *args, env_ids=None if indices is None else ids)

    def _ids_in_pool(self, indices: Indices) -> list[int]:
        return [int(self._envs.env_ids[i]) for i in positions(indices, self.num_envs)]

    # -- closing -----------------------------------------------------------------------------------------

    @translated
    def close(self) -> None:
        """Give these envs up, after the step that is under way. The whole stays open. Closing again does nothing."""
        if self.closed:
            return
        self._let_go()
        with log_close_errors():
            self._discard()
        self._envs = cast("Part", _ClosedPart())


class _ClosedPart:
    """Stands in place of the envs of a closed part, and raises ClosedError when it is used."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ClosedError("this part of the vector env is closed")


@names_keywords(PoolOptions.__annotations__, REFUSED)
class SubprocVecEnv(SubprocVecEnvPart):
    """Steps many envs in parallel, in worker processes: SB3's ``SubprocVecEnv`` on a pool.

    ``infos`` is a tuple of plain dicts, rewards and dones are arrays of your own. Observations are views of memory
    shared with the workers, leased to you: nothing overwrites them while you hold them or a view of them, and you may
    write to them.

    Args:
        env_fns: make the envs, each in its worker. Envs of old Gym are put into SB3's compatibility wrapper.
        start_method: how workers start: "forkserver" (``None`` means that), "spawn" or "fork".
        keep_options: the options of :meth:`set_options` hold for all later resets, those after the end of an episode
            included, instead of the next :meth:`reset` alone.
        max_concurrency, observation_space: as in :class:`remuda.PoolOptions`.
        **options: the others of it: ``num_workers``, ``faults``, ``spares`` and so on. Under ``faults="restart"`` an
            episode that is cut off ends with ``infos[i]["fault"]`` and ``TimeLimit.truncated``, and the env comes back.
            With ``seeding="per_episode"`` seeds are in ``reset_infos[i]["episode_seed"]``. ``num_envs`` does not count
            ``spares``. ``preload`` is SB3, because factories that wrap an env in ``Monitor`` need it, and it needs
            PyTorch. ``name`` is that of this class.

    Attributes:
        num_envs: how many.
        observation_space, action_space: of one env, the first.
        extras: the columns of ``extras=``, by name: arrays with a row for each env, of the latest reset or step:
            views, as observations are.
        reset_infos: the infos of each env's latest ``reset``: a tuple of ``num_envs`` dicts.
        render_mode: of all envs.
        metadata: ``render_modes``, and the envs' ``render_fps`` if they have one.
        waiting: whether :meth:`step_async` has been called and :meth:`step_wait` has not.
        closed: whether :meth:`close` has been called.

    Raises:
        ValueError: no envs, an unknown ``start_method``, or spaces that do not fit into the same rows.
        EnvError: a factory raised; its exception is the cause.
        WorkerDiedError: a worker died while it built its envs.
        remuda.StartTimeoutError: an env took longer to build than ``start_timeout``.
        TypeError: a factory that cannot be pickled, or an unknown option.
    """

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
        options["extras"], functions = extras_of_hosted(options.get("extras"))
        if start_method is not None:
            multiprocessing.get_context(start_method)  # raises the original's error for an unknown method
        pool = Pool(
            hosting(env_fns),
            start_method=start_method,  # type: ignore[arg-type]  # it was checked
            autoreset="same_step",
            max_concurrency=max_concurrency,
            observation_space=observation_space,
            **options,
        )
        with closed_on_error(pool):
            self._adopt(pool, pool, functions, keep_options=keep_options)
        if "render_fps" in pool.metadata:  # where recorders of videos look for it
            self.metadata["render_fps"] = pool.metadata["render_fps"]
        OPEN_ENVS.add(self)

    def has_written(self, obs: npt.NDArray[Any]) -> bool:
        """Whether ``obs``, an array of observations, lies in the memory that these envs write to."""
        return not self.closed and self._pool.owns(obs)

    def split(self, parts: int = 2) -> tuple[SubprocVecEnvPart, ...]:
        split_off = self._split(parts, lambda share: SubprocVecEnvPart(self, share))
        if split_off:  # seeds and options that wait for the next reset went over to the parts
            self._reset_seeds()
            self._reset_options()
        return split_off or (self,)

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
