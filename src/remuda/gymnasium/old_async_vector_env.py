"""``AsyncVectorEnv`` on Gymnasium 0.29: that release's constructor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gymnasium import Env, Space
from gymnasium.core import ActType, ObsType
from gymnasium.vector import VectorEnv

from remuda import FaceOptions, Pool, PoolOptions
from remuda._keywords import names_keywords
from remuda.gymnasium import async_vector_env, spaces

if TYPE_CHECKING:
    from typing_extensions import Unpack

_REFUSED = {
    "autoreset": "with Gymnasium 0.29 an env is reset in the step that ends its episode",
    "start_method": "use context=",
}


@names_keywords(PoolOptions.__annotations__, _REFUSED)
class AsyncVectorEnv(async_vector_env.AsyncVectorEnv[ObsType, ActType], VectorEnv):
    """Steps many envs in parallel, in worker processes: Gymnasium 0.29's ``AsyncVectorEnv`` on a pool.

    Args:
        env_fns: factories of the envs; each is called in the worker of its env.
        observation_space: the observation space of each env; ``None``: that of the first env.
        action_space: the action space of each env; ``None``: that of the first env.
        shared_memory, copy, context, daemon, worker, lazy_infos: as with Gymnasium 1.x.
        infos: "0.29" or ``None``, which mean the same here.
        **options: the other options of :class:`remuda.PoolOptions`.

    Raises:
        RuntimeError: an env has another space than ``observation_space`` or ``action_space``.
        Exception: as with Gymnasium 1.x.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        observation_space: Space[Any] | None = None,
        action_space: Space[Any] | None = None,
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        *,
        lazy_infos: bool = False,
        infos: Literal["0.29"] | None = None,
        **options: Unpack[FaceOptions],
    ) -> None:
        self._given = observation_space, action_space
        super().__init__(
            env_fns, shared_memory, copy, context, daemon, worker, lazy_infos=lazy_infos, infos=infos, **options
        )

    def _adopt(self, pool: Pool) -> None:
        super()._adopt(pool)
        self.metadata = dict(pool.metadata)  # without the mode, which Gymnasium 0.29 does not have

    def _choose_spaces(self, pool: Pool) -> None:
        observation_space, action_space = self._given
        self.single_observation_space = pool.observation_spaces[0] if observation_space is None else observation_space
        self.single_action_space = pool.single_action_space if action_space is None else action_space
        self._lay_out(pool.observation_spaces)
        spaces.check_equal(self.single_observation_space, pool.observation_spaces)
