"""``AsyncSubprocessEnvManager`` and ``SyncSubprocessEnvManager``: DI-engine's env managers on a remuda pool."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, ClassVar

from ding.envs.env_manager.base_env_manager import BaseEnvManager, EnvState
from ditk import logging
from easydict import EasyDict

from remuda import EnvError, Pool, RemudaError, StateError, WorkerDiedError
from remuda._faces.hosting import call_method, get_attribute
from remuda._faces.pool_beneath import HasNoPool, drop_pending, log_close_errors
from remuda._faces.translation import Translation, in_words_of, is_of_call
from remuda._factories import check_env_fns
from remuda.ding.arguments import WORDS, check_options, pool_options, quick
from remuda.ding.errors import translate
from remuda.ding.replays import replays_of
from remuda.ding.reset_orders import ResetOrder
from remuda.ding.spaces import Anything, layout_space
from remuda.ding.timesteps import is_abnormal, is_fault_substitute, rows, timestep_of
from remuda.ding.worker import Adapter, render
from remuda.errors import InvalidActionError, InvalidEnvError, ResourceError


class AsyncSubprocessEnvManager(HasNoPool, BaseEnvManager):  # type: ignore[misc]  # DI-engine ships no types
    """Steps some envs while others still step: DI-engine's ``AsyncSubprocessEnvManager`` on a pool.

    Nothing is started before :meth:`launch`, except ``env_ref``, an env in the calling process that provides the
    spaces, as in the original. Only one thread may use a manager at a time.

    Args:
        env_fn: factories of the envs; each is called in the worker of its env, and the first one also here.
        cfg: the configuration. Missing keys have the defaults of ``config``:

            - ``episode_num``: an env that has finished this number of episodes is DONE.
            - ``auto_reset``: reset envs in the background when their episodes end; if false, they are NEED_RESET.
            - ``reset_inplace``: reset them within the step that ends the episode; its timestep has the new episode's
              observation.
            - ``max_retry``, ``retry_type``, ``retry_waiting_time``: the number of attempts to reset an env, "reset"
              with the same env or "renew" with a rebuilt one, and the seconds between them.
            - ``step_timeout``, ``reset_timeout``: the seconds for a step, and for one attempt to reset; ``None``: no
              limit. ``connect_timeout`` is another limit for such an attempt.
            - ``wait_num``, ``step_wait_timeout``: :meth:`step` returns when all timesteps have arrived, or after
              ``step_wait_timeout`` seconds if ``wait_num`` of them have; ``None``: it waits for all of them.
            - ``shared_memory``: observations of a Box or a flat Dict of boxes travel through shared memory, in the
              dtype of the space; ``False``: all observations are pickled.
            - ``copy_on_get``: observations are copies; ``False``: views of shared memory, which is not overwritten
              while you hold them.
            - ``context``: the start method of workers: "fork", "spawn" or "forkserver". Only workers of "fork" see
              methods and globals of modules that the program has patched.
            - ``remuda``: a dict of :class:`remuda.PoolOptions`: ``num_workers``, ``faults``, ``crash_dir`` and so on.

    Raises:
        AssertionError: ``retry_type`` is invalid, or ``reset_inplace`` is set without ``auto_reset``.
        ValueError, TypeError: a number is invalid, or an option in ``remuda`` is, or the manager sets it itself.
    """

    config: ClassVar[dict[str, Any]] = dict(
        BaseEnvManager.config,
        shared_memory=True,
        copy_on_get=True,
        context="fork",
        wait_num=2,
        step_wait_timeout=0.01,
        connect_timeout=60,
        reset_inplace=False,
        remuda={},
    )

    _why_no_pool = "DI-engine's managers return timesteps as objects, and reset envs by rules of their own"

    def __init__(self, env_fn: Sequence[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._pool: Any = None  # the pool; None before `launch` and after `close`.
        self._stepping: dict[int, None] = {}  # an ordered set of the envs with a timestep that was not returned yet.
        self._arrived: dict[int, Any] = {}  # the timesteps that were received and not returned yet.
        self._queued: dict[int, list[Any]] = {}  # the actions for envs that were still stepping, in order of arrival
        self._env_dynamic_seed: bool | None = None
        self._env_seed: Any = None
        factories = check_env_fns(env_fn, "env_fn", are_gymnasiums=False)
        completed = EasyDict({**self.config, **(cfg or {})})
        self._faults = check_options(completed)
        super().__init__(factories, completed)
        self._shared_memory = self._cfg.shared_memory
        self._copy_on_get = self._cfg.copy_on_get
        self._wait_num = self._cfg.wait_num
        self._step_wait_timeout = self._cfg.step_wait_timeout
        self._connect_timeout = self._cfg.connect_timeout
        self._reset_inplace = self._cfg.reset_inplace
        assert self._auto_reset or not self._reset_inplace, "reset_inplace is unavailable when auto_reset=False."

    # -- life --------------------------------------------------------------------------------------------

    def launch(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        """Starts the workers, builds the envs and resets them.

        Args:
            reset_param: see :meth:`reset`; it has an entry for each env.

        Raises:
            AssertionError: the manager is launched already, the number of entries is not that of envs, or an entry is
                not a dict.
            KeyError: an entry belongs to an env that does not exist.
            RuntimeError: an env could not be built or reset. The manager is closed, and can be launched again.
        """
        assert self._closed, "please first close the env manager"
        if reset_param is not None:
            assert len(reset_param) == len(self._env_fn)
            self._check_params(reset_param)
        self._create_state(reset_param)
        self.reset(reset_param)

    def _create_state(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        env_ids = range(self._env_num)
        self._env_episode_count = dict.fromkeys(env_ids, 0)
        self._ready_obs: dict[int, Any] = dict.fromkeys(env_ids)
        self._reset_param: dict[int, Any] = {i: {} for i in env_ids} | (reset_param or {})
        self._seeds: dict[int, tuple[Any, ...] | None] = dict.fromkeys(env_ids)  # the latest seed of each env.
        self._resets = dict.fromkeys(env_ids, 0)  # the number of resets sent to each env since its latest seed
        self._stepping, self._arrived, self._queued = {}, {}, {}
        space = layout_space(self._observation_space) if self._shared_memory else Anything()
        self._obs_keys = list(self._observation_space.spaces) if hasattr(space, "spaces") else None
        self._pool = self._start_pool(space)
        self._env_states = dict.fromkeys(env_ids, EnvState.INIT)
        self._closed = False

    def _start_pool(self, space: Any) -> Pool:
        options = pool_options(
            self._cfg.get("remuda") or {}, self._faults, self._cfg.context, self._step_timeout, self._order(0)
        )
        replays = replays_of(self._env_ref, self._env_num, self._env_replay_path)
        adapter = functools.partial(
            Adapter,
            observation_space=space,
            reset_inplace=self._reset_inplace,
            step_timeout=self._step_timeout,
            owner=os.getpid(),
            trial=dataclasses.replace(self._order(0), seed=self._new_seed(0)),
        )
        each = zip(self._env_fn, replays, strict=True)
        adapted = [functools.partial(adapter, env_fn, replay=replay) for env_fn, replay in each]
        try:
            return in_words_of(WORDS)(Pool)(adapted, **options)
        except (InvalidEnvError, ResourceError, ValueError):
            raise  # a mistake of the caller or a limit of the system, so not translated
        except RemudaError as error:
            raise RuntimeError(f"the envs could not be built: {error}") from error

    def close(self) -> None:
        """Closes the envs and ends the workers. Closing again does nothing; :meth:`launch` starts new workers.

        Workers are killed after five seconds. Exceptions that envs raise in their ``close`` are logged.

        Raises:
            CloseTimeoutError: a worker did not end when it was killed. Everything else is released.
        """
        if self._closed:
            return
        self._closed = True
        self._env_states.update(dict.fromkeys(self._env_states, EnvState.VOID))
        pool, self._pool = self._pool, None
        with log_close_errors():
            pool.close(timeout=5.0)  # DI-engine's manager also waits five seconds

    @property
    def workers(self) -> list[Any]:
        """The workers, with ``name``, ``pid``, ``exitcode``, ``is_alive()`` and ``env_ids``; empty unless launched."""
        return [] if self._pool is None else list(self._pool.workers)

    # -- reset -------------------------------------------------------------------------------------------

    def reset(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        """Resets envs, and waits for their first observations, which are then in ``ready_obs``.

        Steps in flight are waited for and dropped.

        Args:
            reset_param: by env id, the keywords for the ``reset`` of the env; ``None`` for no keywords. They are also
                used for later resets. ``None``: reset all envs, with their latest keywords.

        Raises:
            AssertionError: the manager is closed, or an entry is not a dict.
            KeyError: an env does not exist.
            RuntimeError: an env could not be reset; the message has its last exception. The manager is closed.
        """
        self._check_closed()
        if reset_param is not None:
            self._check_params(reset_param)
            self._reset_param.update(reset_param)
        env_ids = list(range(self._env_num) if reset_param is None else reset_param)
        if isinstance(self._env_seed, list):
            self._env_seed = dict(enumerate(self._env_seed))  # a copy, because the caller's list must not change
        with self._closed_on_failure():
            self._drop_steps(env_ids)
            for env_id in env_ids:
                if (seed := self._new_seed(env_id)) is not None:
                    self._seeds[env_id], self._resets[env_id] = seed, 0
                    self._env_seed[env_id] = None  # a seed is sent once; only a rebuilt env receives it again
            self._begin_resets(env_ids)
            while any(map(self._resets_now, env_ids)):
                self._receive()

    def _begin_resets(self, env_ids: list[int]) -> None:
        orders = [self._order(env_id) for env_id in env_ids]
        options = [{"order": order} for order in orders]
        before = {env_id: self._env_states[env_id] for env_id in env_ids}
        # First, because an interrupt may come when the pool has sent.
        self._env_states.update(dict.fromkeys(env_ids, EnvState.RESET))
        try:
            self._pool.send_reset(seed=[order.pool_seed for order in orders], options=options, env_ids=env_ids)
        except Exception:  # nothing was sent
            self._env_states.update(before)
            raise
        for env_id in env_ids:
            self._resets[env_id] += 1

    def _new_seed(self, env_id: int) -> tuple[Any, ...] | None:
        """Returns the arguments for the env's method ``seed``; None if they were already sent."""
        seed = self._env_seed[env_id]
        if seed is None:
            return None
        return (seed,) if self._env_dynamic_seed is None else (seed, self._env_dynamic_seed)

    def _order(self, env_id: int) -> ResetOrder:
        limits = [(self._reset_timeout, "reset_timeout"), (self._connect_timeout, "connect_timeout")]
        return ResetOrder(
            param=self._reset_param[env_id],
            seed=self._seeds[env_id],
            resets=self._resets[env_id],
            attempts=self._max_retry,
            retry_type=self._retry_type,
            pause=self._retry_waiting_time,
            limit=min((limit for limit in limits if limit[0] is not None), default=limits[0]),
        )

    # -- step --------------------------------------------------------------------------------------------

    def step(self, actions: dict[int, Any]) -> dict[int, Any]:
        """Sends actions to some envs, and waits for timesteps of these or other stepping envs.

        If an env still steps, its action is queued, and sent when the env's timestep has been returned. The end of the
        episode drops queued actions, except with ``reset_inplace=True``.

        Args:
            actions: actions by env id; any object that can be pickled. There may be none if envs still step.

        Returns:
            ``BaseEnvTimestep`` (or the env's own type) by env id, of at least ``wait_num`` envs. At the end of an
            episode the timestep has the last observation. With ``remuda={"faults": "restart"}`` an env
            that fails has a timestep without observation, with the info ``{"abnormal": True, "err": text}``, and is
            reset in the background. ``err`` is a string with the exception as its attribute ``error``.

        Raises:
            AssertionError: the manager is closed, there are no actions and no env steps, or an env is not in the state
                RUN.
            KeyError: an env does not exist.
            StateError: a RuntimeError: Ctrl-C has ended an earlier step or reset, and envs must be reset.
            TimeoutError: an env took longer than ``step_timeout``. The manager is closed.
            EOFError: a worker died. The manager is closed.
            Exception: an env raised it. The manager is closed.
        """
        self._check_closed()
        states = {env_id: self._env_states[env_id] for env_id in actions}
        assert all(state == EnvState.RUN for state in states.values()), (
            f"current env state are: {states}, please check whether the requested env is in reset or done"
        )
        with self._closed_on_failure():
            early = self._stepping.keys() & actions.keys()
            for env_id in early:
                self._queued.setdefault(env_id, []).append(actions[env_id])
            self._send({i: actions[i] for i in actions if i not in early} if early else actions)
            self._gather(len(actions))
            return self._settle()

    def _send(self, actions: Mapping[int, Any]) -> None:
        ids = list(actions)
        self._stepping.update(dict.fromkeys(ids))  # first, because an interrupt may come when the pool has sent
        try:
            self._pool.send([quick(actions[i]) for i in ids], None if ids == list(range(self._env_num)) else ids)
        except Exception:  # nothing was sent
            for env_id in ids:
                del self._stepping[env_id]
            raise

    def _check_known(self, env_ids: Iterable[int]) -> None:
        if unknown := [env_id for env_id in env_ids if env_id not in range(self._env_num)]:
            raise KeyError(f"expected ids of envs, from 0 to {self._env_num - 1}, got {unknown}")

    def _check_params(self, reset_param: Mapping[int, Any]) -> None:
        self._check_known(reset_param)
        for param in reset_param.values():
            assert param is None or isinstance(param, dict), type(param)

    def _gather(self, sent: int) -> None:
        """Waits for timesteps of at least ``wait_num`` envs. If all of these end episodes, waits for more.

        They stay in `_arrived` until `_settle` returns them, so that an interrupt loses none.
        """
        assert sent > 0 or self._stepping, "expected actions for one env or more, got none"
        least, arrived = min(self._wait_num, sent), 0
        while True:
            self._await_timesteps(min(arrived + least, len(self._stepping)), self._step_wait_timeout)
            arrived = len(self._arrived)
            if arrived == len(self._stepping) or any(not timestep.done for timestep in self._arrived.values()):
                return

    def _await_timesteps(self, least: int, timeout: float | None) -> None:
        """Waits for the timesteps of all stepping envs. After ``timeout`` seconds, ``least`` timesteps suffice."""
        deadline = time.monotonic() + timeout if timeout else None
        required = len(self._stepping) if deadline is None else least
        while len(self._arrived) < len(self._stepping):
            missing = required - len(self._arrived)
            left = None if deadline is None or missing > 0 else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            self._receive(max(missing, 1), left)

    def _settle(self) -> dict[int, Any]:
        """Returns the timesteps that have arrived, in the order in which the envs were sent their actions.

        Also updates the states of these envs, begins resets, and sends queued actions.
        """
        timesteps = {env_id: self._arrived[env_id] for env_id in self._stepping if env_id in self._arrived}
        states = {env_id: self._state_after(env_id, timestep) for env_id, timestep in timesteps.items()}
        resets = [i for i, state in states.items() if state == EnvState.RESET and not self._resets_now(i)]
        if resets:
            self._begin_resets(resets)
        ended = [i for i, timestep in timesteps.items() if timestep.done and not is_abnormal(timestep)]
        counts = {env_id: self._env_episode_count[env_id] + 1 for env_id in ended}
        self._env_states.update(states)
        self._ready_obs.update({i: timesteps[i].obs for i, state in states.items() if state == EnvState.RUN})
        # Until here an interrupt changes nothing that `step` would not do again. The next two attributes change in one
        # statement, because an interrupt may come between two.
        self._stepping, self._arrived = dict.fromkeys(i for i in self._stepping if i not in timesteps), {}
        self._env_episode_count.update(counts)
        queues = {env_id: self._queued.pop(env_id) for env_id in timesteps if env_id in self._queued}
        for env_id, (action, *rest) in queues.items():
            if self._env_states[env_id] == EnvState.RUN:  # the end of an episode drops the actions queued for it
                self._send({env_id: action})
                self._queued.update({env_id: rest} if rest else {})
        return timesteps

    def _state_after(self, env_id: int, timestep: Any) -> EnvState:
        """Returns the state of a running env after a timestep."""
        if is_abnormal(timestep):
            is_rebuilt = is_fault_substitute(timestep)  # the env failed, and the pool has rebuilt it
            return EnvState.RESET if is_rebuilt else EnvState.ERROR
        if not timestep.done:
            return EnvState.RUN
        if self._env_episode_count[env_id] + 1 >= self._episode_num:
            return EnvState.DONE
        if not self._auto_reset:
            return EnvState.NEED_RESET
        return EnvState.RUN if self._reset_inplace else EnvState.RESET

    # -- ready envs --------------------------------------------------------------------------------------

    @property
    def ready_env(self) -> list[int]:
        """The ids of the envs that wait for an action."""
        return [env_id for env_id in self.ready_obs_id if env_id not in self._stepping]

    @property
    def ready_obs_id(self) -> list[int]:
        """The ids of the envs in the state RUN. Resets that have finished in the background are noticed here."""
        if EnvState.RESET in self._env_states.values():
            with self._closed_on_failure():
                self._receive(timeout=0.0)
        return [i for i, state in self._env_states.items() if state == EnvState.RUN]

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, by env id.

        Waits until an env is in the state RUN, unless all are DONE.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: no env can reach that state, because those that are not DONE must be reset. Or a reset in the
                background failed; then the manager is closed.
        """
        self._await_ready()
        return {env_id: self._ready_obs[env_id] for env_id in self.ready_env}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """Pictures (``rgb_array``) of the envs that wait for an action, by env id.

        An env that was rebuilt is omitted until its next step has reported that the episode is over.
        """
        env_ids = self.ready_env
        images = zip(env_ids, self._ask(render, "rgb_array", env_ids=env_ids), strict=True)
        return {env_id: image for env_id, found in images for image in found}

    def _await_ready(self) -> None:
        self._check_closed()
        while not self.done and EnvState.RUN not in self._env_states.values():
            if EnvState.RESET not in self._env_states.values():
                raise StateError(f"expected an env that runs or resets, got {self._env_states}: call reset")
            with self._closed_on_failure():
                self._receive()

    # -- calls -------------------------------------------------------------------------------------------

    def __getattr__(self, key: str) -> Any:
        """Returns the attribute of each env, in a list.

        Raises:
            AssertionError: the manager is closed.
            AttributeError: ``env_ref`` has no such attribute.
            RuntimeError: the attribute is a method, and ``method_name_list`` does not list it.
            EOFError: a worker died. The manager is closed. With ``remuda={"faults": "restart"}`` this and all other
                calls are sent again to its successor instead, and the next step reports that the episode is over.
            Exception: an env raised it. The manager is closed, except with ``remuda={"faults": "restart"}``.
        """
        if key.startswith("__") or key in ("_env_ref", "_closed", "_pool"):
            raise AttributeError(key)  # attributes may not be set yet, while the manager is copied
        if hasattr(type(self), key):
            raise AttributeError(f"`{key}` met an AttributeError, of an env perhaps: it is in the log")
        self._check_closed()
        if not hasattr(self._env_ref, key):
            raise AttributeError(f"env `{type(self._env_ref)}` doesn't have the attribute `{key}`")
        if isinstance(getattr(self._env_ref, key), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f"env getattr doesn't supports method({key}), please override method_name_list")
        return self._ask(get_attribute, key)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Calls the ``enable_save_figure`` of one env."""
        assert figure_path is not None
        self._ask(call_method, "enable_save_figure", (figure_path,), {}, env_ids=[env_id])

    def reward_shaping(self, env_id: int, transitions: list[dict[str, Any]]) -> Any:
        """Calls the ``reward_shaping`` of one env with its transitions, and returns the result."""
        (shaped,) = self._ask(call_method, "reward_shaping", (transitions,), {}, env_ids=[env_id])
        return shaped

    def _ask(self, function: Callable[..., Any], *args: Any, env_ids: list[int] | None = None) -> list[Any]:
        """Calls ``function`` with the adapter of each env, or of some envs, in their workers. Returns the results.

        If envs are restarted and a worker dies, all are called again. The loop ends, because the pool limits restarts.
        """
        self._check_closed()
        self._check_known(env_ids or ())
        with self._closed_on_failure():
            while True:
                try:
                    return self._pool.apply(function, *args, env_ids=env_ids)  # type: ignore[no-any-return]
                except WorkerDiedError:
                    if not self._faults.restarts:
                        raise

    def _receive(self, least: int = 1, timeout: float | None = None) -> None:
        """Receives timesteps and first observations of at least ``least`` envs; after ``timeout`` seconds, of fewer."""
        try:
            batch = self._pool.recv(least, timeout)
        except StateError:
            if self._pool.pending:
                raise
            lost = [env_id for env_id in self._env_states if self._is_awaited(env_id)]
            text = f"expected results of envs {lost}, got none: an interrupt has lost them; call reset"
            raise StateError(text) from None
        except EnvError as error:
            for env_id in error.env_ids:
                self._stepping.pop(env_id, None)
                if self._resets_now(env_id):
                    self._env_states[env_id] = EnvState.ERROR
            raise
        for env_id, obs, info, over in rows(batch, self._obs_keys, copy=self._copy_on_get):
            if self._resets_now(env_id):
                self._env_states[env_id], self._ready_obs[env_id] = EnvState.RUN, obs
            else:
                self._arrived[env_id] = timestep_of(obs, info, over)

    def _drop_steps(self, env_ids: list[int]) -> None:
        """Waits until none of these envs is in flight. Drops the timesteps and exceptions of these envs."""
        if len(env_ids) == self._env_num:
            drop_pending(self._pool)
        while self._pool.pending and any(map(self._is_awaited, env_ids)):
            try:
                self._receive()
            except EnvError as error:
                if not set(error.env_ids) <= set(env_ids):
                    raise
        for env_id in env_ids:
            for of_envs in (self._arrived, self._stepping, self._queued):
                of_envs.pop(env_id, None)

    def _is_awaited(self, env_id: int) -> bool:
        """Returns whether a timestep or a first observation of the env has not arrived yet."""
        return (env_id in self._stepping and env_id not in self._arrived) or self._resets_now(env_id)

    def _resets_now(self, env_id: int) -> bool:
        return bool(self._env_states[env_id] == EnvState.RESET)

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Closes the manager if an env has failed permanently, and raises the error that users of DI-engine catch."""
        try:
            yield
        except (StateError, InvalidActionError):
            raise  # a mistake of the caller: nothing was sent, and the manager stays open
        except RemudaError as error:
            logging.error("%s", error)
            if not (self._faults.restarts and is_of_call(error)):
                self.close()
            Translation(functools.partial(translate, max_retry=self._max_retry)).raise_for(error)


class SyncSubprocessEnvManager(AsyncSubprocessEnvManager, BaseEnvManager):  # type: ignore[misc]  # no types there
    """Steps envs together: DI-engine's ``SyncSubprocessEnvManager`` on a pool.

    It differs from :class:`AsyncSubprocessEnvManager` in that :meth:`step` returns the timesteps of exactly those envs
    for which it received actions, in their order. With ``reset_inplace=True`` every env can step again at once, and
    runs with the same seeds have the same results.
    """

    config: ClassVar[dict[str, Any]] = dict(
        AsyncSubprocessEnvManager.config,
        wait_num=float("inf"),
        step_wait_timeout=None,
    )

    def step(self, actions: dict[int, Any]) -> dict[int, Any]:
        if self._stepping and not self._closed:
            ids = list(self._stepping)
            raise StateError(f"expected envs that do not step, got {ids}: an interrupt ended the step; call reset")
        return super().step(actions)

    def _gather(self, sent: int) -> None:
        self._await_timesteps(len(self._stepping), None)
