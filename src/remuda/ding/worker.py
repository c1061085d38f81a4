"""The worker's side: adapts an env of DI-engine to the pool's loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from ditk import logging
from gymnasium import Space

from remuda import StateError
from remuda._faces.hosting import HostedEnv, reading
from remuda._videos.episodes import Episodes
from remuda._videos.video_recorder import VideoRecorder
from remuda.ding.randomness import OwnRandomness, untouched
from remuda.ding.replays import recorder_of
from remuda.ding.reset_orders import ResetOrder, time_limit
from remuda.ding.spaces import Anything
from remuda.ding.timesteps import as_info, is_abnormal, timestep_of


class Adapter(HostedEnv):
    """An adapter with Gymnasium's methods for an env of DI-engine.

    Timesteps travel in infos, except observations with a row in shared memory. Rewards, flags and infos therefore
    arrive as the env returned them.

    Args:
        env_fn: Builds the env.
        observation_space: The space that rows are laid out for.
        replay: A path for the env's own ``enable_save_replay``, or the episodes to record; ``None``: neither.
        reset_inplace: Reset in the step that ends an episode, and return the observation of the reset.
        step_timeout: The seconds for a step; ``None``: no limit.
        owner: The id of the caller's process, in which the number of threads and ``np.random`` are not changed.
        trial: The order to reset the env with when its steps are measured.

    Attributes:
        env: The env.
        is_new: Whether the env was not reset since it was built.
    """

    def __init__(
        self,
        env_fn: Callable[[], Any],
        observation_space: Space[Any],
        *,
        replay: str | Episodes | None,
        reset_inplace: bool,
        step_timeout: float | None,
        owner: int,
        trial: ResetOrder,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = Anything()
        self._env_fn, self._replay = env_fn, replay
        self._recorder: VideoRecorder | None = None
        self._reset_inplace, self._step_timeout = reset_inplace, step_timeout
        self._trial = trial
        self._has_rows = not isinstance(observation_space, Anything)
        self._last_obs: Any = None
        self._randomness: OwnRandomness | None = None
        if os.getpid() != owner:
            torch.set_num_threads(1)
            self._randomness = OwnRandomness()
        self.env = self._build()

    def _build(self) -> Any:
        self._use_own_randomness()
        self.is_new = True
        env = self._env_fn()
        if isinstance(self._replay, str):
            env.enable_save_replay(self._replay)
        return env

    def _use_own_randomness(self) -> None:
        if self._randomness is not None:
            self._randomness.take_over()

    # -- methods that the worker's loop calls ------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Executes the order ``options["order"]``. For a rebuilt env, ``seed`` is derived from the order's seed."""
        self._use_own_randomness()
        order: ResetOrder | None = (options or {}).get("order")
        if order is None:
            raise StateError("expected an order of the manager to reset, got a step after the end of an episode")
        if order.resets == 0:
            self._seed(order)
        else:
            order = order.with_seed(seed)
            if self.is_new:
                self._seed_like_predecessor(order, order.resets)
        self.is_new = False
        for attempt in range(order.attempts):
            try:
                if attempt > 0 and order.retry_type == "renew":
                    self.env = self._build()
                    self._seed_like_predecessor(order, order.resets, attempt)
                    self.is_new = False
                with time_limit(*order.limit):
                    obs = self.env.reset(**(order.param or {}))
                    self._record_beginning()
                self._last_obs = obs if self._has_rows else None
                return obs, {}
            except Exception as error:
                logging.warning("attempt %d to reset the env failed: %r", attempt + 1, error)
                self._close_quietly()
                if attempt + 1 == order.attempts:
                    raise
                time.sleep(order.pause)
        raise AssertionError("there is at least one attempt")

    def _seed(self, order: ResetOrder) -> None:
        if order.seed is None:
            return
        try:
            self.env.seed(*order.seed)
        except Exception as error:  # an env that cannot be seeded is used unseeded, as in DI-engine's manager
            logging.warning("the env could not be seeded with %r: %r", order.seed, error)

    def _seed_like_predecessor(self, order: ResetOrder, *path: int) -> None:
        """Seeds a rebuilt env like its predecessor. Their episodes differ, unless the order repeats episodes."""
        with untouched() if self._randomness is None else nullcontext():  # `seed` may change `np.random`
            self._seed(order)
        if self._randomness is not None and not order.repeats_episodes:
            self._randomness.move_on(*path)

    def _close_quietly(self) -> None:
        try:
            self.env.close()
        except Exception as error:  # if `close` fails, the next attempt of the reset must still run
            logging.warning("the env raised when it was closed after a failed reset: %r", error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._use_own_randomness()
        if self._step_timeout is None:
            timestep = self._step(action)  # without `time_limit`, which costs a microsecond
        else:
            with time_limit(self._step_timeout, "step_timeout"):
                timestep = self._step(action)
        if is_abnormal(timestep):
            # The row repeats the last observation. If there are no rows, the info has the whole timestep.
            return self._last_obs, 0.0, False, False, as_info(timestep, over=False, has_row=self._has_rows)
        over = bool(timestep.done) and not self._reset_inplace
        info = as_info(timestep, over=over, has_row=self._has_rows)
        if not self._has_rows:
            return None, 0.0, over, False, info
        self._last_obs = timestep.obs
        return timestep.obs, 0.0, over, False, info

    def _step(self, action: Any) -> Any:
        try:
            timestep = self.env.step(action)
        except BaseException:
            if self._recorder is not None:
                self._recorder.end()  # the env has failed: ends its video
            raise
        if self._recorder is not None:
            self._recorder.step(timestep.done or is_abnormal(timestep))
        if self._reset_inplace and timestep.done and not is_abnormal(timestep):
            timestep = timestep._replace(obs=self.env.reset())
            self._record_beginning()
        return timestep

    def _record_beginning(self) -> None:
        if not isinstance(self._replay, Episodes):
            return
        self._recorder = self._recorder or recorder_of(lambda: self.env, self._replay)
        self._recorder.begin()

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.drop()
        super().close()

    def steps_to_measure(self) -> Iterator[None]:
        """Steps the env with random actions, so that ``num_workers="auto"`` can measure it. Yields after each step."""
        while True:
            self.reset(options={"order": self._trial})
            over = False
            while not over:
                _, _, over, _, info = self.step(self._random_action())
                over = over or is_abnormal(timestep_of(None, info, over))
                yield

    def _random_action(self) -> Any:
        action = self.env.random_action() if hasattr(self.env, "random_action") else None
        return self.env.action_space.sample() if action is None else action  # DI-engine's default method returns None


@reading
def render(adapter: Adapter, mode: str) -> list[Any]:
    """Returns a list with one picture of the env, or an empty list before its first reset."""
    from ding.utils import render as render_env

    return [] if adapter.is_new else [render_env(adapter.env, mode)]
