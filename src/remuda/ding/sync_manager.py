"""``SyncSubprocessEnvManager``: every step waits for all its envs."""

from __future__ import annotations

from typing import Any, ClassVar

from ding.envs.env_manager.base_env_manager import BaseEnvManager

from remuda import StateError
from remuda.ding.async_manager import AsyncSubprocessEnvManager


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

    def _gather(self, sent: int) -> dict[int, Any]:
        order = list(self._stepping)
        timesteps = self._take(len(order), None)
        return {env_id: timesteps[env_id] for env_id in order}
