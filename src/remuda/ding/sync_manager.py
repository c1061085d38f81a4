"""``SyncSubprocessEnvManager``: every step waits for all its envs."""

from __future__ import annotations

from typing import Any, ClassVar

from remuda.ding.async_manager import AsyncSubprocessEnvManager


class SyncSubprocessEnvManager(AsyncSubprocessEnvManager):
    """Steps envs together: DI-engine's ``SyncSubprocessEnvManager`` on a pool.

    Like :class:`AsyncSubprocessEnvManager`, but :meth:`step` returns the timesteps of exactly the envs that it was
    given actions for, in their order. With ``reset_inplace=True`` every env runs on at once, and a run with the same
    seeds is the same run.
    """

    config: ClassVar[dict[str, Any]] = dict(
        AsyncSubprocessEnvManager.config,
        wait_num=float("inf"),
        step_wait_timeout=None,
    )

    def _gather(self, sent: int) -> dict[int, Any]:
        order = list(self._stepping)
        timesteps = self._take(len(order), None)
        return {env_id: timesteps[env_id] for env_id in order}
