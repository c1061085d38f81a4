"""``vec_env``: any pool as a vector env of Stable-Baselines3, also a pool of vector envs."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from remuda import Pool
from remuda._faces.vector_env import PooledVectorEnv
from remuda.sb3.errors import translated
from remuda.sb3.subproc_vec_env import SubprocVecEnvPart, WholeVecEnv


def vec_env(envs: Any, *, keep_options: bool = False) -> SubprocVecEnvPart:
    """Return a running pool as SB3's ``VecEnv``, with the methods of :class:`SubprocVecEnv`.

    A pool of vector envs (``vector_size=``) has each of their envs as an env of the ``VecEnv``::

        pool = remuda.Pool([make_vector_env] * 4, vector_size=16, autoreset="same_step")
        model = PPO("MlpPolicy", remuda.sb3.vec_env(pool))

    What SB3 asks of a single env, a vector env answers for all of its envs: attributes, wrappers and the results of
    methods are those of the vector env. Indices of ``env_method`` and ``set_attr`` must select whole vector envs.

    Args:
        envs: a :class:`remuda.Pool`, or a whole vector env of a face, such as
            :class:`remuda.gymnasium.AsyncVectorEnv`, with same-step autoreset. Use only the result from now on. Its
            ``close`` closes ``envs``, too.
        keep_options: see :class:`SubprocVecEnv`.

    Returns:
        The vector env. If ``envs`` is one of this module, it is returned itself. Rewards are float64.

    Raises:
        TypeError: ``envs`` is something else, or a part of a pool.
        ValueError: the pool has another autoreset mode, or the rewards are vectors.
        ClosedError: ``envs`` is closed.
    """
    if isinstance(envs, SubprocVecEnvPart):
        return envs
    pool = envs.pool if isinstance(envs, PooledVectorEnv) else envs
    if not isinstance(pool, Pool):
        raise TypeError(f"expected a remuda.Pool or a whole vector env of remuda's faces, got {envs!r}")
    return _PoolVecEnv(pool, envs, keep_options)


class _PoolVecEnv(WholeVecEnv, VecEnv):
    """A pool that the caller has made, as a vector env."""

    @translated
    def __init__(self, pool: Pool, owner: Any, keep_options: bool) -> None:
        """`owner`: the object that closes the pool."""
        engine = pool._engine
        engine.check_open()
        if pool.autoreset != "same_step":
            raise ValueError(
                f"expected a pool with autoreset='same_step', got {pool.autoreset!r}: Stable-Baselines3 has an env "
                "reset within the step that ends its episode"
            )
        if engine.layout.reward_shape:
            raise ValueError(
                f"expected rewards that are numbers, got vectors of the shape {engine.layout.reward_shape}: "
                "Stable-Baselines3 learns from numbers; wrap the envs in a wrapper that weighs the objectives, such as "
                "mo_gymnasium.wrappers.LinearReward"
            )
        self._owner = owner
        extras = engine.settings.extras or {}  # functions, or pairs of a function and its shape
        functions = {name: given[0] if isinstance(given, tuple) else given for name, given in extras.items()}
        self._own(pool, functions, keep_options=keep_options)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":  # vector envs of other libraries may have none
            return [self._pool.render_mode] * len(self._positions(indices))
        return super().get_attr(attr_name, indices)

    def close(self) -> None:
        super().close()
        if self._owner is not self._pool:
            self._owner.close()
