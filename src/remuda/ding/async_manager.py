"""``AsyncSubprocessEnvManager``: DI-engine's env manager on a remuda pool."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, ClassVar, NoReturn

from ding.envs.env_manager.base_env_manager import BaseEnvManager, EnvState
from ditk import logging
from easydict import EasyDict

from remuda import EnvError, Pool, RemudaError, StateError, WorkerDiedError
from remuda._faces.no_pool import HasNoPool
from remuda._faces.stats import SuggestedCode
from remuda._factories import check_env_fns
from remuda.ding.arguments import REFUSED, ManagerOptions
from remuda.ding.errors import translate
from remuda.ding.in_flight import InFlight
from remuda.ding.replays import replays_of
from remuda.ding.reset_orders import ResetOrder
from remuda.ding.spaces import Anything, layout_space
from remuda.ding.timesteps import is_abnormal, is_spoilt
from remuda.ding.worker import Adapter, call_method, get_attribute, render
from remuda.errors import InvalidActionError, InvalidEnvError, ResourceError

_CLOSE_SECONDS = 5.0  # that envs get to close, as in the original


class AsyncSubprocessEnvManager(HasNoPool, BaseEnvManager):  # type: ignore[misc]  # DI-engine ships no types
    """Steps some envs while others step on: DI-engine's ``AsyncSubprocessEnvManager`` on a pool.

    Nothing is started before :meth:`launch`, but for ``env_ref``: an env of the calling process, built to ask for its
    spaces, as in the original. A manager is used by one thread at a time.

    Args:
        env_fn: make the envs, each in its worker, and the first one also here.
        cfg: what it leaves out has the default of ``config``:

            - ``episode_num``: an env that has finished so many episodes is DONE.
            - ``auto_reset``: reset envs whose episode is over in the background; else they are NEED_RESET.
            - ``reset_inplace``: reset them within the step that ends the episode; its timestep has the new episode's
              observation.
            - ``max_retry``, ``retry_type``, ``retry_waiting_time``: so often is a reset tried in all, "reset" with the
              same env or "renew" with one built anew, so many seconds apart.
            - ``step_timeout``, ``reset_timeout``: seconds for a step, and for one attempt to reset; ``None``: no
              limit. ``connect_timeout`` is another limit for that attempt.
            - ``wait_num``, ``step_wait_timeout``: :meth:`step` returns when all timesteps are there, or after that
              many seconds with this number of them; ``None``: with all of them.
            - ``shared_memory``: observations of a Box or a flat Dict of them travel through shared memory, in the
              dtype of the space; ``False``: all as the env returned them.
            - ``copy_on_get``: observations are arrays of their own; ``False``: views of shared memory, which nothing
              overwrites while you hold them.
            - ``context``: how workers start: "fork", "spawn" or "forkserver".
            - ``remuda``: a dict of :class:`remuda.PoolOptions`: ``num_workers``, ``faults``, ``record`` and so on.

    Raises:
        AssertionError: a ``retry_type`` that is none, or ``reset_inplace`` without ``auto_reset``.
        ValueError, TypeError: a ``remuda`` with options that the pool does not have, or that the manager decides on.
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

    _suggested_code = SuggestedCode(
        make="manager = AsyncSubprocessEnvManager({env_fns}, EasyDict(cfg, remuda=dict({options})))",
        spare="manager = AsyncSubprocessEnvManager(env_fns, EasyDict(cfg, auto_reset=True, reset_inplace=False))",
        split="",
        partial="manager = AsyncSubprocessEnvManager(env_fns, EasyDict(cfg, wait_num={enough}, step_wait_timeout=0))",
        slim="",
        refused=REFUSED,
    )
    _why_no_pool = "DI-engine's managers hand out timesteps as objects, and reset envs by orders of their own"

    def __init__(self, env_fn: Sequence[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._in_flight: InFlight | None = None
        self._env_dynamic_seed: bool | None = None
        self._env_seed: Any = None
        factories = check_env_fns(env_fn, "env_fn", are_gymnasiums=False)
        super().__init__(factories, EasyDict({**self.config, **(cfg or {})}))
        self._shared_memory = self._cfg.shared_memory
        self._copy_on_get = self._cfg.copy_on_get
        self._context = self._cfg.context
        self._options = ManagerOptions(self._cfg.get("remuda") or {}, self._context)
        self._wait_num = self._cfg.wait_num
        self._step_wait_timeout = self._cfg.step_wait_timeout
        self._connect_timeout = self._cfg.connect_timeout
        self._reset_inplace = self._cfg.reset_inplace
        if not self._auto_reset:
            assert not self._reset_inplace, "reset_inplace is unavailable when auto_reset=False."

    # -- life --------------------------------------------------------------------------------------------

    def launch(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        """Start the workers, build the envs and reset them.

        Args:
            reset_param: as in :meth:`reset`, with an entry for each env.

        Raises:
            AssertionError: the manager is launched already, or there are not as many entries as envs.
            KeyError: an entry of an env that does not exist.
            RuntimeError: an env could not be built or reset. The manager is closed, and can be launched again.
        """
        assert self._closed, "please first close the env manager"
        if reset_param is not None:
            assert len(reset_param) == len(self._env_fn)
            self._check_known(reset_param)
        self._create_state(reset_param)
        self.reset(reset_param)

    def _create_state(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        self._env_episode_count = dict.fromkeys(range(self._env_num), 0)
        self._ready_obs: dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._reset_param: dict[int, Any] = {i: {} for i in range(self._env_num)} | (reset_param or {})
        self._seeds: dict[int, tuple[Any, ...] | None] = dict.fromkeys(range(self._env_num))  # that envs were given
        self._resets = dict.fromkeys(range(self._env_num), 0)  # that they were ordered since then
        space = layout_space(self._observation_space) if self._shared_memory else Anything()
        self._in_flight = InFlight(
            self._start_pool(space),
            copy=self._copy_on_get,
            keys=list(self._observation_space.spaces) if hasattr(space, "spaces") else None,
            on_reset=self._begin_episode,
            restarts=self._options.restarts,
        )
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.INIT)
        self._closed = False

    def _start_pool(self, space: Any) -> Pool:
        options = self._options.keywords(
            # A second later than the worker itself would interrupt it.
            step_timeout=None if self._step_timeout is None else self._step_timeout + 1.0,
            reset_timeout=self._order(0).budget,
        )
        trial = dataclasses.replace(self._order(0), seed=self._new_seed(0))
        adapted = [
            functools.partial(
                Adapter,
                env_fn,
                space,
                replay=replay,
                reset_inplace=self._reset_inplace,
                step_timeout=self._step_timeout,
                owner=os.getpid(),
                trial=trial,
            )
            for env_fn, replay in zip(self._env_fn, replays_of(self._env_ref, self._paths()), strict=True)
        ]
        try:
            return Pool(adapted, **options)
        except (InvalidEnvError, ResourceError, ValueError):
            raise  # mistakes of the caller, and limits of the system
        except RemudaError as error:
            raise RuntimeError(f"the envs could not be built: {error}") from error

    def _paths(self) -> list[str | None]:
        return self._env_replay_path or [None] * self._env_num

    def close(self) -> None:
        """Close the envs and end the workers. Closing again does nothing; :meth:`launch` starts anew.

        Envs that need more than five seconds are killed. What an env raises in its ``close`` is logged.

        Raises:
            CloseTimeoutError: a worker would not die. Everything else is released.
        """
        if self._closed:
            return
        self._closed = True
        self._env_states.update(dict.fromkeys(self._env_states, EnvState.VOID))
        in_flight, self._in_flight = self._talk, None
        try:
            in_flight.pool.close(timeout=_CLOSE_SECONDS)
        except (EnvError, WorkerDiedError) as error:
            logging.warning("closing the env manager: %s", error)

    @property
    def _running_pool(self) -> Pool | None:
        return None if self._in_flight is None else self._in_flight.pool

    @property
    def workers(self) -> list[Any]:
        """The workers: ``name``, ``pid``, ``exitcode``, ``is_alive()`` and ``env_ids``; none unless launched."""
        return list(self._in_flight.pool.workers) if self._in_flight else []

    # -- reset -------------------------------------------------------------------------------------------

    def reset(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        """Reset envs and wait for their first observations, which ``ready_obs`` has.

        Steps that are in flight are waited for and dropped.

        Args:
            reset_param: which envs, and the keywords for the ``reset`` of each, or ``None`` for none. They are
                remembered for the resets that follow. ``None``: all envs, with what they remember.

        Raises:
            AssertionError: the manager is closed, or an entry is no dict.
            KeyError: there is no such env.
            RuntimeError: an env could not be reset; says what it raised last. The manager is closed.
        """
        self._check_closed()
        if reset_param is not None:
            self._check_known(reset_param)
            for param in reset_param.values():
                assert param is None or isinstance(param, dict), type(param)
            self._reset_param.update(reset_param)
        env_ids = list(range(self._env_num) if reset_param is None else reset_param)
        with self._told():
            self._talk.drop(env_ids)
            self._begin_resets(env_ids, seeded=True)
            self._talk.await_resets(env_ids)

    def _begin_resets(self, env_ids: Iterable[int], *, seeded: bool = False) -> None:
        env_ids = list(env_ids)
        if seeded:
            self._hand_out_seeds(env_ids)
        self._talk.send_resets({env_id: self._order(env_id) for env_id in env_ids})
        for env_id in env_ids:
            self._env_states[env_id] = EnvState.RESET
            self._resets[env_id] += 1

    def _hand_out_seeds(self, env_ids: Iterable[int]) -> None:
        for env_id in env_ids:
            if (seed := self._new_seed(env_id)) is not None:
                self._seeds[env_id], self._resets[env_id] = seed, 0
                self._env_seed[env_id] = None  # a seed is used once, but for envs that must be built anew

    def _new_seed(self, env_id: int) -> tuple[Any, ...] | None:
        """The arguments of the env's ``seed`` that it has not been given yet."""
        seed = self._env_seed[env_id]
        if seed is None:
            return None
        return (seed,) if self._env_dynamic_seed is None else (seed, self._env_dynamic_seed)

    def _order(self, env_id: int) -> ResetOrder:
        limits = [limit for limit in (self._reset_timeout, self._connect_timeout) if limit is not None]
        return ResetOrder(
            param=self._reset_param[env_id],
            seed=self._seeds[env_id],
            resets=self._resets[env_id],
            attempts=self._max_retry,
            retry_type=self._retry_type,
            pause=self._retry_waiting_time,
            timeout=min(limits, default=None),
        )

    def _begin_episode(self, env_id: int, obs: Any) -> None:
        self._env_states[env_id] = EnvState.RUN
        self._ready_obs[env_id] = obs

    def seed(self, seed: int | list[int] | dict[int, int], dynamic_seed: bool | None = None) -> None:
        """Seed envs at their next :meth:`reset` (or :meth:`launch`), and ``action_space`` at once.

        Args:
            seed: an int gives env i ``seed + i``; a list has one for each env, a dict for some.
            dynamic_seed: the second argument of the envs' ``seed``, unless it is ``None``.

        Raises:
            AssertionError: a list of another length.
            TypeError: anything else.
        """
        super().seed(seed, dynamic_seed)
        if isinstance(self._env_seed, list):
            self._env_seed = list(self._env_seed)  # the caller's own stays as it is

    # -- step --------------------------------------------------------------------------------------------

    def step(self, actions: dict[int, Any]) -> dict[int, Any]:
        """Send these envs a step, and wait for timesteps: of them, or of envs that were sent one before.

        Args:
            actions: by env id, anything that can be pickled.

        Returns:
            ``BaseEnvTimestep`` (or what the env returns in its place) by env id, of at least ``wait_num`` envs. Of
            an env whose episode is over it has the last observation. With ``remuda={"faults": "restart"}`` an env
            that fails has a timestep without observation whose info is ``{"abnormal": True, "err": text}``, and is
            reset in the background. ``err`` is a string whose attribute ``error`` is the exception.

        Raises:
            AssertionError: the manager is closed, there are no actions, or an env is not in the state RUN.
            KeyError: there is no such env.
            TimeoutError: an env took longer than ``step_timeout``. The manager is closed.
            EOFError: a worker died. The manager is closed.
            Exception: what an env raised. The manager is closed.
        """
        self._check_closed()
        self._check_running(actions)
        with self._told():
            self._talk.send_steps(actions)
            timesteps = self._gather(len(actions))
            self._settle(timesteps)
        return timesteps

    def _check_known(self, env_ids: Iterable[int]) -> None:
        if unknown := [env_id for env_id in env_ids if env_id not in range(self._env_num)]:
            raise KeyError(f"expected ids of envs, from 0 to {self._env_num - 1}, got {unknown}")

    def _check_running(self, env_ids: Iterable[int]) -> None:
        states = {env_id: self._env_states[env_id] for env_id in env_ids}
        assert all(state == EnvState.RUN for state in states.values()), (
            f"current env state are: {states}, please check whether the requested env is in reset or done"
        )

    def _gather(self, sent: int) -> dict[int, Any]:
        """Timesteps of as many envs as must be waited for, and of one that goes on if there is any."""
        assert sent > 0, "expected actions for one env or more, got none"
        least, got = min(self._wait_num, sent), dict[int, Any]()
        while True:
            rest = len(self._talk.stepping)
            new = self._talk.take(min(least, rest), self._step_wait_timeout)
            got.update(new)
            if len(new) == rest or any(not timestep.done for timestep in got.values()):
                return got

    def _settle(self, timesteps: Mapping[int, Any]) -> None:
        """What timesteps say about the states of their envs."""
        over = []
        for env_id, timestep in timesteps.items():
            if is_abnormal(timestep):
                self._env_states[env_id] = EnvState.ERROR
                if is_spoilt(timestep):
                    over.append(env_id)  # its env has been built anew
            elif not timestep.done:
                self._ready_obs[env_id] = timestep.obs
            elif self._ends_for_good(env_id):
                self._env_states[env_id] = EnvState.DONE
            elif not self._auto_reset:
                self._env_states[env_id] = EnvState.NEED_RESET
            elif self._reset_inplace:
                self._ready_obs[env_id] = timestep.obs
            else:
                over.append(env_id)
        if over:
            self._begin_resets(over)

    def _ends_for_good(self, env_id: int) -> bool:
        self._env_episode_count[env_id] += 1
        return bool(self._env_episode_count[env_id] >= self._episode_num)

    # -- what is ready -----------------------------------------------------------------------------------

    @property
    def ready_env(self) -> list[int]:
        """The envs that wait for an action."""
        self._look()
        stepping = self._in_flight.stepping if self._in_flight else {}
        return [i for i, state in self._env_states.items() if state == EnvState.RUN and i not in stepping]

    @property
    def ready_obs_id(self) -> list[int]:
        """The envs whose state is RUN."""
        self._look()
        return [i for i, state in self._env_states.items() if state == EnvState.RUN]

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, by env id.

        Waits until an env is in the state RUN, unless all are DONE.

        Raises:
            RuntimeError: none ever will be: those that are not DONE must be reset. Or a reset in the background
                failed; the manager is closed then.
        """
        self._await_ready()
        return {env_id: self._ready_obs[env_id] for env_id in self.ready_env}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """Pictures (``rgb_array``) of the envs that wait for an action, by env id.

        An env that was built anew has none before its next step has told that the episode is over: it is left out.
        """
        env_ids = self.ready_env
        images = zip(env_ids, self._ask(render, "rgb_array", env_ids=env_ids), strict=True)
        return {env_id: image for env_id, found in images for image in found}

    def _await_ready(self) -> None:
        self._look()
        while not self.done and EnvState.RUN not in self._env_states.values():
            if self._in_flight is None or not self._in_flight.resetting:
                raise StateError(
                    f"expected an env that runs or resets, got {self._env_states}: reset those that are in error"
                )
            with self._told():
                self._talk.await_a_reset()

    def _look(self) -> None:
        if self._in_flight is not None and self._in_flight.resetting:
            with self._told():
                self._in_flight.look()

    # -- calls -------------------------------------------------------------------------------------------

    def __getattr__(self, key: str) -> Any:
        """Return the attribute of each env, in a list.

        Raises:
            AssertionError: the manager is closed.
            AttributeError: ``env_ref`` has no such attribute.
            RuntimeError: it is a method that ``method_name_list`` does not have.
            EOFError: a worker died. The manager is closed. With ``remuda={"faults": "restart"}`` its successor is asked
                instead, and the next step tells that the episode is over; here and in all other calls.
            Exception: what an env raised. The manager is closed, but not with ``remuda={"faults": "restart"}``.
        """
        if key.startswith("__") or key in ("_env_ref", "_closed", "_in_flight"):
            raise AttributeError(key)  # asked for before it is there, as when a manager is copied
        if hasattr(type(self), key):
            raise AttributeError(f"`{key}` met an AttributeError, of an env perhaps: it is in the log")
        self._check_closed()
        if not hasattr(self._env_ref, key):
            raise AttributeError(f"env `{type(self._env_ref)}` doesn't have the attribute `{key}`")
        if isinstance(getattr(self._env_ref, key), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f"env getattr doesn't supports method({key}), please override method_name_list")
        return self._ask(get_attribute, key)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Call the ``enable_save_figure`` of one env."""
        assert figure_path is not None
        self._ask(call_method, "enable_save_figure", figure_path, env_ids=[env_id])

    def reward_shaping(self, env_id: int, transitions: list[dict[str, Any]]) -> Any:
        """Return what the ``reward_shaping`` of one env makes of its transitions."""
        (shaped,) = self._ask(call_method, "reward_shaping", transitions, env_ids=[env_id])
        return shaped

    def _ask(self, function: Callable[..., Any], *args: Any, env_ids: list[int] | None = None) -> list[Any]:
        self._check_closed()
        self._check_known(env_ids or ())
        with self._told():
            return self._talk.ask(function, *args, env_ids=env_ids)

    # -- inside ------------------------------------------------------------------------------------------

    @property
    def _talk(self) -> InFlight:
        assert self._in_flight is not None  # there is one unless the manager is closed
        return self._in_flight

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Close the manager where an env has failed for good, and raise what a user of DI-engine would catch."""
        try:
            yield
        except (StateError, InvalidActionError):
            raise  # the caller's mistake: nothing was sent
        except RemudaError as error:
            self._fail(error)

    def _fail(self, error: RemudaError) -> NoReturn:
        told = translate(error, self._max_retry)
        logging.error("%s", error)
        if not self._survives(error):
            self.close()
        if told is error:
            raise error
        raise told from told.__cause__

    def _survives(self, error: RemudaError) -> bool:
        """Whether it goes on: what is restarted does where an env has raised in a call, which ends no episode."""
        is_of_call = isinstance(error, EnvError) and all(failure.operation == "call" for failure in error.failures)
        return is_of_call and self._options.restarts
