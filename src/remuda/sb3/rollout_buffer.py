"""``RolloutBuffer``: Stable-Baselines3's buffer, with observations in the memory that the workers write to."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from numpy.lib.stride_tricks import as_strided
from stable_baselines3.common import buffers
from stable_baselines3.common.type_aliases import DictRolloutBufferSamples, RolloutBufferSamples

from remuda import Rollout
from remuda.sb3.subproc_vec_env import OPEN_ENVS, WholeVecEnv

Array = npt.NDArray[Any]

_ONLY = ""  # the key of observations that are not in a dict


class RolloutBuffer(buffers.RolloutBuffer):
    """The rollout buffer of SB3's PPO and A2C, which does not copy the observations.

        model = PPO("CnnPolicy", env, rollout_buffer_class=remuda.sb3.RolloutBuffer)

    If the observations lie in the memory of a :class:`SubprocVecEnv`, unchanged or transposed by ``VecTransposeImage``,
    the env writes its next steps into a :class:`remuda.Rollout`, from which minibatches are gathered. The first
    rollout is copied, because the buffer finds the env by its observations. Observations that a wrapper such as
    ``VecNormalize`` or ``VecFrameStack`` computes are always copied. Learning has the same results, bit by bit.

    Args:
        buffer_size: the number of steps of each env.
        observation_space: the space of one env; it may be a ``Dict``, for which SB3 has another class.
        action_space: the space of one env.
        device: the device of the minibatches.
        gae_lambda: the factor lambda of the advantages (GAE).
        gamma: the discount.
        n_envs: the number of envs.

    Attributes:
        observations: array (buffer_size, n_envs, ...), or a dict of such; views of shared memory unless copied.
        rollout: the rollout with the observations; ``None`` if they were copied.

    Raises:
        NotImplementedError: Stable-Baselines3 has no buffers for the space.
    """

    observations: Any

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
    ) -> None:
        is_dict = isinstance(observation_space, spaces.Dict)
        self._spaces = dict(observation_space.spaces) if is_dict else {_ONLY: observation_space}  # type: ignore[attr-defined]
        self._is_dict = is_dict
        self.rollout: Rollout | None = None
        self._env: weakref.ref[WholeVecEnv] | None = None
        self._frames: dict[str, Array] = {}  # the rollout's observations, (buffer_size + 1, n_envs, ...)
        super().__init__(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs)

    # -- filling -----------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Drop all steps, and open a rollout for the next steps of the env. Raises the errors of
        :meth:`SubprocVecEnv.rollout`."""
        self._views: dict[str, Array] = {}  # (buffer_size, n_envs, ...)
        self.observations = self._views
        if self.rollout is not None:
            self.rollout.close()
        self.rollout, self._frames = None, {}
        for name in ("rewards", "returns", "episode_starts", "values", "log_probs", "advantages"):
            setattr(self, name, np.zeros((self.buffer_size, self.n_envs), np.float32))
        self.actions = np.zeros((self.buffer_size, self.n_envs, self.action_dim), self.action_space.dtype)
        self.generator_ready = False
        buffers.BaseBuffer.reset(self)
        env = None if self._env is None else self._env()
        if env is not None and not env.closed:
            self.rollout = env.rollout(self.buffer_size)
            frames = self.rollout.obs if self._is_dict else {_ONLY: self.rollout.obs}
            self._frames = {key: frames[key] for key in self._spaces}

    def add(
        self,
        obs: Any,
        action: Array,
        reward: Array,
        episode_start: Array,
        value: torch.Tensor,
        log_prob: torch.Tensor,
    ) -> None:
        """Add one step of all envs.

        Args:
            obs: the observations before the step: an array of ``n_envs`` rows, or a dict of such.
            action, reward: the actions and the rewards of the step.
            episode_start: whether each row of ``obs`` is the first of an episode.
            value, log_prob: the values of ``obs``, and the log probabilities of the actions.

        Raises:
            IndexError: the buffer is full.
            ValueError: an array has another number of rows.
        """
        given = obs if self._is_dict else {_ONLY: obs}
        if self.pos == 0:
            self._lay_out({key: np.asarray(given[key]) for key in self._spaces})
        for key, view in self._views.items():
            place, array = view[self.pos], np.asarray(given[key])
            if _address(place) != _address(array):  # otherwise they lie there already
                place[...] = array.reshape(place.shape)
        self.actions[self.pos] = action.reshape((self.n_envs, self.action_dim))
        self.rewards[self.pos], self.episode_starts[self.pos] = reward, episode_start
        self.values[self.pos] = value.detach().cpu().numpy().flatten()
        self.log_probs[self.pos] = log_prob.detach().cpu().numpy().reshape(-1)
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def _lay_out(self, given: dict[str, Array]) -> None:
        """Chooses the memory for observations: the rollout's frames if laid out alike, else the buffer's own arrays."""
        if self.rollout is None or not all(_lies_like(given[key], self._frames[key]) for key in given):
            self.rollout, self._frames = None, {}
            has_written = (env for env in OPEN_ENVS if env.num_envs == self.n_envs and env.has_written(*given.values()))
            self._env = next(map(weakref.ref, has_written), None)
            shapes: Any = self.obs_shape if self._is_dict else {_ONLY: self.obs_shape}
            self._views = {
                key: np.zeros((self.buffer_size, self.n_envs, *shapes[key]), space.dtype)
                for key, space in self._spaces.items()
            }
        else:
            self._views = {key: _seen_as(given[key], frames[:-1]) for key, frames in self._frames.items()}
        self.observations = self._views if self._is_dict else self._views[_ONLY]

    # -- reading -----------------------------------------------------------------------------------------

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        """Yield minibatches of all steps of all envs, in random order.

        Args:
            batch_size: the size of each minibatch except the last; ``None``: one minibatch with all steps.

        Raises:
            AssertionError: the buffer is not full.
        """
        assert self.full, "expected a buffer that is full"
        indices = np.random.permutation(self.buffer_size * self.n_envs)
        if not self.generator_ready:
            for name in ("actions", "values", "log_probs", "advantages", "returns"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        size = batch_size or len(indices)
        for start in range(0, len(indices), size):
            yield self._get_samples(indices[start : start + size])

    def _get_samples(self, batch_inds: Array, env: Any = None) -> Any:
        # SB3's indices are ordered by env, then step; the frames are ordered by step, then env.
        env_of, step_of = np.divmod(batch_inds, self.buffer_size)
        rows = step_of * self.n_envs + env_of
        observations = {key: self._gather(key, rows) for key in self._views}
        actions = self.actions[batch_inds].astype(np.float32, copy=False)
        others = (self.values, self.log_probs, self.advantages, self.returns)
        rest = [self.to_torch(array) for array in (actions, *(other[batch_inds].flatten() for other in others))]
        if self._is_dict:
            return DictRolloutBufferSamples(observations, *rest)
        return RolloutBufferSamples(observations[_ONLY], *rest)

    # -- inside ------------------------------------------------------------------------------------------

    def _gather(self, key: str, rows: Array) -> torch.Tensor:
        view = self._views[key]
        frames = self._frames[key][:-1] if self.rollout is not None else view
        gathered = frames.reshape(-1, *frames.shape[2:]).take(rows, axis=0)
        if view.strides != frames.strides:  # copied to SB3's memory layout, because it affects torch's sums
            gathered = np.ascontiguousarray(_seen_as(view[0], gathered[None])[0])
        return self.to_torch(gathered.reshape(-1, *view.shape[2:]), copy=False)  # already a copy


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _lies_like(obs: Array, frames: Array) -> bool:
    """Whether observations have the memory layout of these frames, if the order of the axes is ignored."""
    frame = frames[0]
    is_one_piece = obs.nbytes == frame.nbytes and obs.dtype == frame.dtype and len(obs) == len(frame)
    axes = sorted(zip(obs.strides[1:], obs.shape[1:], strict=True), reverse=True)
    obs_axes = [axis for axis in axes if axis[1] != 1]
    frame_axes = [axis for axis in zip(frame.strides[1:], frame.shape[1:], strict=True) if axis[1] != 1]
    return is_one_piece and obs.strides[0] == frame.strides[0] and obs_axes == frame_axes


def _seen_as(obs: Array, frames: Array) -> Array:
    """Returns a view of frames, with the axes in the same order as in the observations."""
    shape = (len(frames), frames.shape[1], *obs.shape[1:])
    return as_strided(frames, shape, (frames.strides[0], frames.strides[1], *obs.strides[1:]))
