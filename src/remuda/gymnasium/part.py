"""``AsyncVectorEnvPart``: some envs of a split vector env, as a vector env of their own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium import logger
from gymnasium.core import ActType, ObsType
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_differing_spaces, batch_space, create_empty_array

from remuda import Part
from remuda.gymnasium.async_vector_env import AsyncVectorEnv


class AsyncVectorEnvPart(AsyncVectorEnv[ObsType, ActType]):
    """Some of a vector env's envs, reset, stepped and called apart from the others: what ``split`` makes.

        halves = envs.split(2)
        for half in halves:
            obs, infos = half.reset(seed=0)
            half.step_async(policy(obs))
        while learning:
            for half in halves:  # while the policy deals with one half, the other half's envs step
                obs, rewards, terminations, truncations, infos = half.step_wait()
                half.step_async(policy(obs))

    Everything is counted from 0: env ``i`` here is env ``env_ids[i]`` of the whole. But an int ``seed`` goes to
    that one as ``seed + env_ids[i]``, so that parts that are reset with the same int together begin as the whole does.

    Attributes:
        env_ids: (num_envs,) int64, ascending: which envs of the whole these are.
        whole: the vector env that was split. It owns the workers; closing it closes this.
    """

    def __init__(self, whole: AsyncVectorEnv[ObsType, ActType], envs: Part) -> None:
        self.whole, self.env_ids = whole, envs.env_ids
        self.num_envs, ids = envs.num_envs, envs.env_ids.tolist()
        width = whole._pool.vector_size or 1
        self.env_fns = [whole.env_fns[i] for i in dict.fromkeys(env_id // width for env_id in ids)]
        for name in _AS_THE_WHOLE:
            setattr(self, name, copy.copy(getattr(whole, name)))
        self.spec = copy.deepcopy(whole.spec)
        if self.spec is not None:
            self.spec.kwargs["num_envs"] = self.num_envs
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        reported = [whole._pool.observation_spaces[i] for i in ids]
        is_different = self.observation_mode == "different"
        single = self.single_observation_space
        self.observation_space = batch_differing_spaces(reported) if is_different else batch_space(single, len(ids))
        self.observations: Any = create_empty_array(single, n=self.num_envs, fn=np.zeros)
        self._pool = whole._pool
        self._begin(envs)

    @property
    def processes(self) -> list[Any]:
        """The workers that host these envs, and perhaps others."""
        return [worker for worker in self._pool.workers if not set(worker.env_ids).isdisjoint(self.env_ids.tolist())]

    def split(self, parts: int = 2) -> tuple[AsyncVectorEnv[ObsType, ActType], ...]:
        """Not for a part: split the whole into more.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"expected the whole to be split, got a part of it: use whole.split(...), not {parts} of this")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Give these envs up, after the call that is pending; what :meth:`close` calls. The whole stays open.

        Args:
            timeout: seconds for the pending call to end; ``None``: as long as it takes.
            terminate: do not wait. The workers are the whole's to end.

        Raises:
            Exception: what an env raised in the pending call, or a timeout. It is closed all the same.
        """
        try:
            if self._state is not AsyncState.DEFAULT and not terminate:
                pending = self._state.value
                logger.warn(f"Calling `close` while waiting for a pending call to `{pending}` to complete.")
                getattr(self, f"{pending}_wait")(timeout)
        finally:
            self._let_go()


_AS_THE_WHOLE = (
    "_has_extras",
    "shared_memory",
    "copy",
    "context",
    "daemon",
    "worker",
    "observation_mode",
    "autoreset_mode",
    "max_concurrency",
    "lazy_infos",
    "metadata",
    "render_mode",
    "single_action_space",
    "single_observation_space",
)
