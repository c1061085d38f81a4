"""``SubprocVecEnv``: Stable-Baselines3's vector env on a remuda pool, and the parts that it can be split into."""

from __future__ import annotations

import multiprocessing
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import Env, Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from remuda import Batch, ClosedError, FaceOptions, InvalidActionError, Part, Pool, PoolOptions, StateError
from remuda._faces.hosting import call_method, extras_of_hosted, get_attribute, hosting, reading, set_attribute
from remuda._faces.pool_beneath import closed_on_error, log_close_errors
from remuda._faces.vector_env import IDLE, STEPPING, Indices, PooledVectorEnv
from remuda._faces.worker_defaults import set_worker_defaults
from remuda._keywords import gives_name_to, names_keywords, seeds_apart
from remuda._wording import in_brief
from remuda.sb3 import worker
from remuda.sb3.errors import translated
from remuda.sb3.results import GOES_ON, read_step

if TYPE_CHECKING:
    from typing_extensions import Unpack  # `Unpack` is in `typing` since Python 3.11

REFUSED = {
    "autoreset": "Stable-Baselines3 has an env reset within the step that ends its episode",
    "resets_ahead": "Stable-Baselines3 has an env reset within the step that ends its episode; use spares=",
    "vector_size": "Stable-Baselines3 asks each env for its attributes and wrappers, unlike those in a vector env; "
    "make a remuda.Pool and pass it to remuda.sb3.vec_env",
}
"""Options of the pool that are not possible here, and why."""

OPEN_ENVS: weakref.WeakSet[WholeVecEnv] = weakref.WeakSet()
"""All vector envs of this process, perhaps with some that are closed."""

_ALIASES = {"action_masks": "action_mask"}  # sb3-contrib's name for the column of action masks, and the usual name


class SubprocVecEnvPart(PooledVectorEnv, VecEnv):
    """A part of a vector env, made by `SubprocVecEnv.split`: its envs are reset and stepped apart from the others.

    Env ``i`` here is env ``env_ids[i]`` of the whole. :meth:`seed` gives env ``i`` the seed ``seed + env_ids[i]``: if
    all parts have the same seed, their envs begin as those of the whole would.

    Attributes:
        env_ids: (num_envs,) int64, ascending: the ids of these envs in the whole.
        whole: the vector env that was split. It owns the workers; closing it closes this.
    """

    rollout = translated(PooledVectorEnv.rollout)

    def __init__(self, whole: SubprocVecEnvPart, envs: Part) -> None:
        self.whole = whole
        self._adopt(whole._pool, envs, whole._extras_functions, keep_options=whole.keep_options)
        self.metadata, ids = dict(whole.metadata), envs.env_ids.tolist()
        self.reset_infos = tuple(whole.reset_infos[i] for i in ids)  # type: ignore[assignment]  # as the whole's
        self._seeds = [whole._seeds[i] for i in ids]
        self._options = [whole._options[i] for i in ids]

    def _adopt(self, pool: Pool, envs: Part, extras: Mapping[str, Any], *, keep_options: bool) -> None:
        """Initializes the vector env on a running pool. `extras`: the pool's, functions and step columns."""
        self._begin(pool, envs)
        self.keep_options = keep_options
        self._extras_functions = extras
        self._extras_sent = 0  # the value of `Part.last_sent` when `extras` were computed
        VecEnv.__init__(self, envs.num_envs, pool.single_observation_space, pool.single_action_space)
        self._batches_actions = isinstance(self.action_space, (spaces.Dict, spaces.Tuple))

    @property
    def waiting(self) -> bool:
        """Whether :meth:`step_async` has been called and :meth:`step_wait` has not."""
        return self._state is STEPPING

    # -- reset and step ----------------------------------------------------------------------------------

    @translated
    @seeds_apart
    def reset(self) -> VecEnvObs:
        """Reset all envs, with the seeds of :meth:`seed` and the options of :meth:`set_options`.

        The seeds hold for this reset only; so do the options, unless ``keep_options=True``. A step under way is waited
        for, and its results are dropped. The infos are in ``reset_infos``.

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
        self._has_leftovers = True  # remains True after an exception, because results may be in flight
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
        """Step each env: takes ``actions`` like :meth:`step_async`, and returns the same as :meth:`step_wait`.

        Raises what both raise.
        """
        if self._state is not IDLE or self._has_leftovers or not self._steps_at_once:
            self.step_async(actions)
            return self.step_wait()
        if self._batches_actions:
            actions = _batch_actions(self.action_space, actions, self.num_envs)
        try:
            return self._read(self._envs.step(actions))
        except BaseException as error:
            self._note_failed_step(error)
            translated.raise_for(error)

    @translated
    def step_async(self, actions: Any) -> None:
        """Send each env its action, and return at once; :meth:`step_wait` returns the results.

        Args:
            actions: an array with a row for each env, or a sequence with one action for each. They are converted to the
                dtype of the action space.

        Raises:
            remuda.InvalidActionError: a ValueError: the number, shape, dtype or range of the actions is wrong. Nothing
                was sent.
            remuda.StateError: a RuntimeError: a step is under way already, or an env must be reset first. Nothing was
                sent.
            BrokenPoolError, ClosedError: see :meth:`reset`.
        """
        self._check_idle("step_async")
        self._drop_leftovers()
        if self._batches_actions:
            actions = _batch_actions(self.action_space, actions, self.num_envs)
        self._envs.send(actions)
        self._state = STEPPING

    @translated
    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the results of :meth:`step_async`. Envs that ended their episodes have been reset.

        Returns:
            (observations, rewards, dones, infos): observations in the form that :meth:`reset` returns; two arrays
            (num_envs,), the first in the dtype of the envs' own rewards, the second of bool; a tuple of dicts. Each
            dict has ``TimeLimit.truncated``. If an episode has ended, its dict also has ``terminal_observation``, the
            observation is the first of the next episode, and ``reset_infos`` has the info of the reset.

        Raises:
            EnvError: an env raised. All envs can be used again after a :meth:`reset`.
            remuda.StateError: a RuntimeError: no step is under way.
            WorkerDiedError, RestartLimitError, ClosedError: see :meth:`reset`.
        """
        return self._read(self._wait(STEPPING, lambda _: self._envs.recv(), None))

    def _read(self, batch: Batch) -> VecEnvStepReturn:
        if self._extras_functions:
            self.extras, self._extras_sent = batch.extras, self._envs.last_sent
        if (step := batch._copied_results(GOES_ON)) is not None:  # all infos are empty, as in most steps
            return step
        rewards, dones, infos, self.reset_infos = read_step(batch, self.reset_infos)  # type: ignore[assignment]
        return batch.obs, rewards, dones, infos  # type: ignore[return-value]

    def _check_idle(self, method: str) -> None:
        if self.waiting:
            raise StateError(f"expected no step under way in {method}(), got one in flight; call step_wait first")

    # -- seeds and options of the next reset -------------------------------------------------------------

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next :meth:`reset`: env ``i`` gets ``seed + env_ids[i]``; ``None`` draws ``seed`` at random.

        Returns:
            The seed of each env, in order.
        """
        first = super().seed(seed)[0]
        assert first is not None  # SB3 draws a seed if it gets None
        self._seeds = [first + env_id for env_id in self.env_ids.tolist()]
        return self._seeds

    @translated
    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Keep options for the next :meth:`reset`; with ``keep_options=True`` for every reset from now on.

        Args:
            options: a dict for all envs, or a list with a dict for each env; ``None``: no options. They are copied.

        Raises:
            ValueError: with ``keep_options=True``: the length of the list is not ``num_envs``, or it is a list although
                there are spares.
            BrokenPoolError, ClosedError: with ``keep_options=True``: the envs can no longer be reset.
        """
        super().set_options(options)
        if self.keep_options:
            standing = options if options is None or isinstance(options, dict) else [one or None for one in options]
            self._envs.set_reset_options(standing or None)

    # -- calls -------------------------------------------------------------------------------------------

    def get_images(self) -> Sequence[npt.NDArray[np.uint8] | None]:
        """Return each env's picture. If ``render_mode`` is not "rgb_array", warn and return ``None`` for each. Raises
        the errors of :meth:`env_method`."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"expected the render mode 'rgb_array' of envs that are asked for images, got {self.render_mode!r}",
                stacklevel=2,
            )
            return [None] * self.num_envs
        width = self._pool.vector_size
        if width is None:
            return self.env_method("render")
        pictures = self._ask(call_method, "render", (), {})
        if not all(isinstance(one, (tuple, list)) and len(one) == width for one in pictures):
            raise RuntimeError(f"expected render() of each vector env to return {width} pictures, got another value")
        return [one[env_id % width] for one, env_id in zip(pictures, self.env_ids.tolist(), strict=True)]

    def has_attr(self, attr_name: str) -> bool:
        """Return whether ``extras=`` has a column for the attribute ``attr_name``, or every env (or a wrapper around
        it) has the attribute. Raises the errors of :meth:`get_attr`, except for a missing attribute."""
        return self._column(attr_name) is not None or all(self._ask(worker.has_attribute, attr_name))

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return each env's attribute, looked up from the outermost wrapper inwards.

        If ``extras=`` has a column for the attribute, the values of the column are returned instead.

        Args:
            attr_name: the name of the attribute.
            indices: the envs: an int, some ints, or ``None`` for all.

        Raises:
            EnvError: an env has no such attribute, or the attribute cannot be pickled.
            IndexError: an env does not exist.
            WorkerDiedError, BrokenPoolError, ClosedError: an env cannot answer.
        """
        if (column := self._column(attr_name)) is not None:
            return self._rows(column, indices)
        return self._ask(get_attribute, attr_name, indices=indices)

    @translated
    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute on the outermost wrapper of each env. It is set again on envs that are rebuilt.

        Args:
            attr_name: the name of the attribute.
            value: the value, the same for all envs.
            indices: see :meth:`get_attr`; ``None`` includes spares.

        Raises: see :meth:`get_attr`.
        """
        self._envs.apply_async(
            set_attribute,
            (attr_name, value),
            env_ids=None if indices is None else sorted(set(self._whole_envs(indices))),
            with_spares=indices is None,
            about=("attribute", attr_name),
        ).result()

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each env, looked up from the outermost wrapper inwards.

        If ``extras=`` has a column of that name (or ``"action_mask"`` for ``"action_masks"``), a call without arguments
        returns copies of its rows, and no call is sent to the workers if the column is current.

        Args:
            method_name: the name of the method.
            *method_args: arguments of the method.
            **method_kwargs: keywords of the method.
            indices: see :meth:`get_attr`.

        Returns:
            The result of each env's method.

        Raises: see :meth:`get_attr`; EnvError also if the method raised. The episode of that env continues.
        """
        column = None if method_args or method_kwargs else self._column(method_name)
        if column is not None:
            return self._rows(column, indices)
        self._whole_envs(indices)
        return self._apply(call_method, method_name, method_args, method_kwargs, indices=indices)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Return whether each env (of ``indices``) has a wrapper of ``wrapper_class``. Raises the errors of
        :meth:`get_attr`."""
        return self._ask(worker.is_wrapped, wrapper_class, indices=indices)

    @translated
    def replace(self, indices: Indices, env_fns: Sequence[Callable[[], Env[Any, Any]]]) -> None:
        """Replace some envs by others, in the same workers; see :meth:`remuda.Pool.replace`. Call :meth:`reset` next.

        Attributes that :meth:`set_attr` has set are set on the new envs. The spaces of the vector env do not change.

        Args:
            indices: see :meth:`get_attr`.
            env_fns: a factory for each of these envs, in their order.

        Raises:
            remuda.StateError: a RuntimeError: a step is under way.
            ValueError, TypeError: an argument is wrong, or there are spares.
            remuda.SpaceMismatchError: the spaces of the new envs do not fit.
            EnvError: a factory raised; its exception is the cause. The old envs continue; those that render are
                rebuilt and lose their episodes.
            IndexError, WorkerDiedError, BrokenPoolError, ClosedError: see :meth:`get_attr`.
        """
        self._make_way_for("replace")
        self._envs.replace(self._ids_in_pool(indices), hosting(worker.build, env_fns))

    def _column(self, name: str) -> str | None:
        """Returns the name of the ``extras=`` column for an attribute or method; None if there is no such column."""
        names = (name, _ALIASES.get(name, name))  # a step column is no attribute of the env: only `extras` has it
        return next((one for one in names if callable(self._extras_functions.get(one))), None)

    def _rows(self, column: str, indices: Indices) -> list[Any]:
        """Returns copies of a column's rows. If a command followed the last step, the envs compute them again."""
        may_read = self.extras and not (self.closed or self.waiting or self._has_leftovers)
        if may_read and self._extras_sent == self._envs.last_sent:
            return [self.extras[column][env].copy() for env in self._positions(indices)]
        values = self._ask(reading(partial(self._extras_functions[column])), indices=indices)
        width, ids = self._pool.vector_size, self._ids_in_pool(indices)
        return values if width is None else [rows[i % width] for rows, i in zip(values, ids, strict=True)]

    @translated
    def _ask(self, function: Callable[..., Any], *args: Any, indices: Indices = None) -> list[Any]:
        """Calls a function that changes nothing. A vector env is called once, and answers for each of its envs."""
        if (width := self._pool.vector_size) is None:
            return self._apply(function, *args, indices=indices)
        ids = self._ids_in_pool(indices)
        every = [i for first in sorted({i - i % width for i in ids}) for i in range(first, first + width)]
        answers = dict(zip(every, self._envs.apply(function, *args, env_ids=every), strict=True))
        return [answers[i] for i in ids]

    @translated
    def _apply(self, function: Callable[..., Any], *args: Any, indices: Indices = None) -> list[Any]:
        ids = self._ids_in_pool(indices)
        if len(set(ids)) < len(ids):  # an env that is selected twice is called twice
            return [self._envs.apply(function, *args, env_ids=[env_id])[0] for env_id in ids]
        return self._envs.apply(function, *args, env_ids=None if indices is None else ids)

    def _whole_envs(self, indices: Indices) -> list[int]:
        """Returns the ids of these envs. Raises ValueError if some envs of a vector env are missing."""
        ids, width = self._ids_in_pool(indices), self._pool.vector_size or 1
        for i in ids:
            if missing := {*range(i - i % width, i - i % width + width)}.difference(ids):
                raise ValueError(
                    f"expected indices of whole vector envs, got {i} without {sorted(missing)}: a call reaches all "
                    "envs of a vector env"
                )
        return ids

    def _ids_in_pool(self, indices: Indices) -> list[int]:
        ids: list[int] = self.env_ids[self._positions(indices)].tolist()
        return ids

    # -- closing -----------------------------------------------------------------------------------------

    @translated
    def close(self) -> None:
        """Wait for a step under way, and close this part, not the whole vector env. Closing again does nothing."""
        if self.closed:
            return
        self._let_go()
        with log_close_errors():
            self._discard()
        self._envs = cast("Part", _ClosedPart())


def _batch_actions(space: Space[Any], actions: Any, num_envs: int) -> Any:
    """Batches actions: converts a sequence with a dict or tuple for each env to an element of the batched space.

    Raises:
        InvalidActionError: The number of actions is not that of envs, or an action does not fit.
    """
    each = list(actions)
    if len(each) != num_envs:
        raise InvalidActionError(f"expected {num_envs} actions, one for each env, got {len(each)}")
    try:
        return concatenate(space, each, create_empty_array(space, num_envs))  # type: ignore[arg-type]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidActionError(f"expected actions of {space}, got {in_brief(each)} ({error!r})") from error


class _ClosedPart:
    """Replaces the envs of a closed part, and raises ClosedError when it is used."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ClosedError("this part of the vector env is closed")


class WholeVecEnv(SubprocVecEnvPart, VecEnv):
    """All envs of a pool as one vector env."""

    def _own(self, pool: Pool, extras: Mapping[str, Any], *, keep_options: bool) -> None:
        """Initializes the vector env on a running pool, which it closes."""
        self._adopt(pool, pool, extras, keep_options=keep_options)
        if "render_fps" in pool.metadata:  # video recorders read the frame rate from the metadata
            self.metadata["render_fps"] = pool.metadata["render_fps"]
        OPEN_ENVS.add(self)

    def has_written(self, *obs: npt.NDArray[Any]) -> bool:
        """Return whether all arrays ``obs`` lie in the memory that these envs write to."""
        return not self.closed and all(map(self._pool.owns, obs))

    @translated
    def split(self, parts: int = 2) -> tuple[SubprocVecEnvPart, ...]:
        split_off = self._split(parts, lambda share: SubprocVecEnvPart(self, share))
        if split_off:  # the seeds and options for the next reset have moved to the parts
            self._reset_seeds()
            self._reset_options()
        return split_off or (self,)

    def close(self) -> None:
        """Wait for a step under way, close the envs and stop the workers. Closing again does nothing.

        Exceptions that envs raise in their ``close`` are logged. Workers are killed after 10 seconds.

        Raises:
            remuda.CloseTimeoutError: a worker did not end when it was killed; everything else was released.
        """
        if self.closed:
            return
        self._let_go()
        with log_close_errors():
            self._pool.close()


@names_keywords(PoolOptions.__annotations__, REFUSED)
@gives_name_to(SubprocVecEnvPart, WholeVecEnv)
class SubprocVecEnv(WholeVecEnv, VecEnv):
    """Steps many envs in parallel, in worker processes: SB3's ``SubprocVecEnv`` on a pool.

    ``infos`` is a tuple of plain dicts; rewards and dones are copies. Observations are writable views of memory shared
    with the workers. You lease them: no array is overwritten while you hold it or a view of it.

    Args:
        env_fns: factories of the envs; each is called in the worker of its env. Envs of old Gym are put into SB3's
            compatibility wrapper.
        start_method: the start method of workers: "forkserver", "spawn", "fork", or ``None``, as for a pool. Only
            workers of "fork" see methods and globals of modules that the program has patched.
        keep_options: whether the options of :meth:`set_options` hold for all later resets, including those after the
            end of an episode, instead of the next :meth:`reset` only.
        max_concurrency, observation_space: see :class:`remuda.PoolOptions`.
        **options: its other options: ``num_workers``, ``faults``, ``spares`` and so on. With ``faults="restart"`` a
            fault ends the episode with ``infos[i]["fault"]`` and ``TimeLimit.truncated``, and the env is rebuilt. With
            ``faults="resume"`` the rebuilt env plays its episode again, and nothing here shows the fault.
            With ``seeding="per_episode"`` seeds are in ``reset_infos[i]["episode_seed"]``. ``num_envs`` does not count
            ``spares``. ``preload`` defaults to SB3, which imports PyTorch, because factories that wrap an env in
            ``Monitor`` need it. ``name`` is ``Worker<SubprocVecEnv>``.

    Attributes:
        num_envs: the number of envs.
        observation_space, action_space: the spaces of the first env.
        extras: the columns of ``extras=`` by name, of the latest reset or step: arrays with a row for each env, which
            are views like observations.
        reset_infos: the infos of each env's latest ``reset``: a tuple of ``num_envs`` dicts.
        render_mode: the render mode of all envs.
        metadata: ``render_modes``, and the envs' ``render_fps`` if they have one.
        waiting: whether :meth:`step_async` has been called and :meth:`step_wait` has not.
        closed: whether :meth:`close` has been called.

    Raises:
        ValueError: there are no envs, ``start_method`` is unknown, or the envs' spaces do not fit into the same rows.
        EnvError: a factory raised; its exception is the cause.
        WorkerDiedError: a worker died while it built its envs.
        remuda.StartTimeoutError: an env took longer to build than ``start_timeout``.
        TypeError: a factory cannot be pickled, or an option is unknown.
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
        if start_method is not None:
            multiprocessing.get_context(start_method)  # for an unknown method, raises the same error as SB3
        set_worker_defaults(options, f"Worker<{type(self).__name__}>")
        options.setdefault("preload", ("stable_baselines3",))
        options["extras"], functions = extras_of_hosted(options.get("extras"))
        pool = Pool(
            hosting(worker.build, env_fns),
            start_method=start_method,  # type: ignore[arg-type]  # it was checked
            autoreset="same_step",
            max_concurrency=max_concurrency,
            observation_space=observation_space,
            **options,
        )
        with closed_on_error(pool):
            self._own(pool, functions, keep_options=keep_options)
