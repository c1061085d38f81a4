"""``StatsCallback``: sends the restarts and faults of a vector env to Stable-Baselines3's logger."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from remuda.sb3.subproc_vec_env import SubprocVecEnvPart


class StatsCallback(BaseCallback):
    """Logs ``remuda/restarts`` and ``remuda/faults`` after each rollout, the totals since the envs were made.

        model.learn(100_000, callback=remuda.sb3.StatsCallback())

    Args:
        verbose: as for all callbacks of Stable-Baselines3; this one prints nothing.

    Raises:
        TypeError: when the learning begins, if the vector env, without its wrappers, is not one of remuda.
    """

    def _on_training_start(self) -> None:
        self._envs: Any = self.training_env.unwrapped
        if not isinstance(self._envs, SubprocVecEnvPart):
            raise TypeError(f"expected a model that learns with envs of remuda.sb3, got {type(self._envs).__name__}")

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        stats = self._envs.stats()
        self.logger.record("remuda/restarts", stats.restarts)
        self.logger.record("remuda/faults", stats.faults)
