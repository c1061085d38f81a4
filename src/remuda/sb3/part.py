"""``SubprocVecEnvPart``: resets, steps and calls some envs of a pool, or all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import Env
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from remuda import Batch, ClosedError, Part, Pool, RemudaError, Rollout, StateError
from remuda._faces.closing import log_close_errors
from remuda._faces.vector_env import IDLE, STEPPING, PooledVectorEnv
from remuda.sb3 import worker
from remuda.sb3.arguments import Indices, batch_actions, come_apart, env_ids, factories
from remuda.sb3.errors import translated
from remuda.sb3.extras import Extras
from remuda.sb3.results import read_step

if TYPE_CHECKING:
    from remuda import ColumnType


class SubprocVecEnvPart(PooledVectorEnv, VecEnv):
    """Some of a vector env's envs, reset, stepped and called apart from the others: what ``split`` makes.

        halves = envs.split(2)
        for half in halves:
            half.step_async(policy(half.reset()))
        while learning:
            for half in halves:  # while the policy deals with one half, the other half's envs step
                obs, rewards, dones, infos = half.step_wait()
                half.step_async(policy(obs))

    Everything is counted from 0: env ``i`` here is env ``env_ids[i]`` of the whole. But :meth:`seed` gives that one
    ``seed + env_ids[i]``, so that parts with the same seed together begin as the whole does.

    Attributes:
        env_ids: (num_envs,) int64, ascending: which envs of the whole these are.
        whole: the vector env that was split. It owns the workers; closing it closes this.
    """

    def __init__(self, whole: SubprocVecEnvPart, envs: Part) -> None:
        self.whole = whole
        self._adopt(whole._pool, envs, whole._extras.functions, keep_options=whole.keep_options)
        self.metadata, ids = dict(whole.metadata), envs.env_ids.tolist()
        self.reset_infos = tuple(whole.reset_infos[i] for i in ids)  # type: ignore[assignment]  # as the whole's
        self._seeds = [whole._seeds[i] for i in ids]
        self._options = [whole._options[i] for i in ids]

    def _adopt(self, pool: Pool, envs: Part, extras: Mapping[str, Callable[[Any], Any]], *, keep_options: bool) -> None:
        """Take over envs of a pool that runs."""
        self._begin(pool, envs)
        self.closed, self.keep_options = False, keep_options
        self._extras = Extras(extras)
        VecEnv.__init__(self, envs.num_envs, pool.single_observation_space, pool.single_action_space)
        self._batches_actions = come_apart(self.action_space)

    @property
    def waiting(self) -> bool:
        """Whether :meth:`step_async` has been called and :meth:`step_wait` has not."""
        return self._state is STEPPING

    @property
    def extras(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of ``extras=``, by name, of the latest reset or step: views, as observations are."""
        return self._extras.columns

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
        self._make_way_for_reset()
        self._has_leftovers = True  # until all results are here
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        options = [one or None for one in self._options] if any(self._options) else None
        batch = self._envs.reset(seed=seeds, options=options)
        self._has_leftovers = False
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
            BrokenPoolError: an env was lost to an earlier fault.
            ClosedError: after :meth:`close`.
        """
        self._drop_leftovers()
        if self._batches_actions:
            actions = batch_actions(self.action_space, actions, self.num_envs)
        self._envs.send(actions)
        self._state = STEPPING

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
        return self._read(self._wait(STEPPING, lambda _: self._envs.recv(), None))

    def _read(self, batch: Batch) -> VecEnvStepReturn:
        if self._extras.functions:
            self._extras.note(batch, self._envs.last_sent)
        rewards, dones, infos, self.reset_infos = read_step(batch, self.reset_infos)  # type: ignore[assignment]
        return batch.obs, rewards, dones, infos  # type: ignore[return-value]

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
        self._drop_leftovers()
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
        if not self.waiting and not self._has_leftovers and not self.closed:
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
        self._drop_leftovers()
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

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next :meth:`reset`: env ``i`` with ``seed + env_ids[i]``; ``None``: with one drawn at random.

        Returns:
            The seed of each env, in order.
        """
        first = super().seed(seed)[0]
        assert first is not None  # one was drawn where none was given
        self._seeds = [first + env_id for env_id in self.env_ids.tolist()]
        return self._seeds

    # -- closing -----------------------------------------------------------------------------------------

    @translated
    def close(self) -> None:
        """Give these envs up, after the step that is under way. The whole stays open. Closing again does nothing."""
        if self.closed:
            return
        self._let_go()
        with log_close_errors():
            self._discard()
        self._envs = cast("Part", _GivenUp())

    def _let_go(self) -> None:
        """Be closed, and hold no shared memory, which ends with the last view of it."""
        self.closed = True
        self._settle()
        self._extras.let_go()


class _GivenUp:
    """Stands where the envs of a closed part were."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ClosedError("this part of the vector env is closed")
