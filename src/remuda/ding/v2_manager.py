"""``SubprocessEnvManagerV2``: the manager of DI-engine's task pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import treetensor.numpy as tnp
from ding.envs.env_manager.base_env_manager import BaseEnvManagerV2
from ding.utils import make_key_as_identifier, remove_illegal_item
from treevalue import TreeValue
from treevalue.tree.common import create_storage

from remuda.ding.sync_manager import SyncSubprocessEnvManager
from remuda.ding.timesteps import is_abnormal, is_spoilt
from remuda.ding.truncated_episodes import Episodes


class SubprocessEnvManagerV2(SyncSubprocessEnvManager, BaseEnvManagerV2):  # type: ignore[misc]  # no types there
    """Steps envs together, in treetensors: DI-engine's ``SubprocessEnvManagerV2`` on a pool."""

    def __init__(self, env_fn: Sequence[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._shown: list[int] = []  # the envs of the rows of ``ready_obs``, until they step or reset
        super().__init__(env_fn, cfg)
        self._episodes = Episodes(self._reward_space)

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, stacked by ascending env id: a ``tnp.ndarray``.

        Waits until an env is in the state RUN.

        Raises:
            RuntimeError: none ever will be, or a reset in the background failed; the manager is closed then.
        """
        self._await_ready()
        self._shown = self.ready_env
        return _as_tree(_stacked([self._ready_obs[env_id] for env_id in self._shown]))

    def reset(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        self._shown = []
        super().reset(reset_param)

    def step(self, actions: Any) -> list[Any]:  # type: ignore[override]  # so it is in the original
        """Step the envs of ``ready_obs``, as it was when it was last looked at, or else those of ``ready_obs_id``.

        Args:
            actions: a ``tnp.ndarray`` with a row for each of them, in that order, or a list of actions.

        Returns:
            A ``tnp.ndarray`` for each env, with the keys ``obs``, ``reward``, ``done``, ``info`` and ``env_id``. Keys
            of the info are made identifiers, and what no treetensor can hold is left out. With
            ``remuda={"faults": "restart"}`` an env that fails has its last observation once more, a reward of 0 and
            ``info.abnormal``. It is done, with ``info.TimeLimit_truncated`` and the sum of the episode's rewards as
            ``info.eval_episode_return``; but with ``dynamic_seed=False``, as evaluators seed, it is not: their episode
            is begun anew, for they would count one that was cut off.

        Raises:
            AssertionError, TimeoutError, EOFError, Exception: as :meth:`SyncSubprocessEnvManager.step` does.
        """
        if isinstance(actions, tnp.ndarray):
            actions = [part.squeeze(0) for part in tnp.split(actions, actions.shape[0])]
        timesteps = super().step(dict(zip(self._addressed(actions), actions, strict=False)))
        if self._options.restarts:
            timesteps = {
                env_id: self._as_middleware_takes_it(env_id, timestep) for env_id, timestep in timesteps.items()
            }
        return [_timestep_as_tree(env_id, timestep) for env_id, timestep in timesteps.items()]

    def _addressed(self, actions: Sequence[Any]) -> list[int]:
        """Whom the actions are for: not for an env that has become ready since ``ready_obs`` was looked at."""
        ready, (shown, self._shown) = self.ready_obs_id, (self._shown, [])
        return shown if len(shown) == len(actions) else ready

    def _begin_episode(self, env_id: int, obs: Any) -> None:
        super()._begin_episode(env_id, obs)
        self._episodes.begin(env_id)

    def _as_middleware_takes_it(self, env_id: int, timestep: Any) -> Any:
        if is_spoilt(timestep):
            return self._episodes.stand_in(env_id, self._ready_obs[env_id], done=self._env_dynamic_seed is not False)
        if not is_abnormal(timestep):
            self._episodes.add(env_id, timestep)
        return timestep


def _timestep_as_tree(env_id: int, timestep: Any) -> Any:
    obs, reward, done, info = timestep
    info = remove_illegal_item(make_key_as_identifier(info))
    return _as_tree({"obs": obs, "reward": reward, "done": done, "info": info, "env_id": env_id})


def _as_tree(value: Any) -> Any:
    """Return what ``tnp.array`` makes of it. That renders each leaf as text on its way, which takes most of a step."""
    return tnp.ndarray(create_storage(_arrays(value))) if isinstance(value, _TREES) else np.array(value)


def _arrays(tree: Any) -> dict[str, Any]:
    return {key: _arrays(part) if isinstance(part, _TREES) else np.array(part) for key, part in tree.items()}


def _stacked(rows: Sequence[Any]) -> Any:
    """Return a tree of stacked rows, from rows that are trees, or arrays."""
    if not isinstance(rows[0], _TREES):
        return np.stack(rows)
    return {key: _stacked([row[key] for row in rows]) for key in rows[0].keys()}  # noqa: SIM118  # no dict perhaps


_TREES = (dict, TreeValue)
