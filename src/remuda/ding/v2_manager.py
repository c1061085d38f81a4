"""``SubprocessEnvManagerV2``: the manager of DI-engine's task pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import treetensor.numpy as tnp
from ding.envs import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import BaseEnvManagerV2
from ding.utils import make_key_as_identifier, remove_illegal_item
from treevalue import TreeValue
from treevalue.tree.common import create_storage

from remuda import StateError
from remuda.ding.managers import SyncSubprocessEnvManager
from remuda.ding.timesteps import is_abnormal, is_fault_substitute


class SubprocessEnvManagerV2(SyncSubprocessEnvManager, BaseEnvManagerV2):  # type: ignore[misc]  # no types there
    """Steps envs together, with results as treetensors: DI-engine's ``SubprocessEnvManagerV2`` on a pool."""

    def __init__(self, env_fn: Sequence[Callable[[], Any]], cfg: Mapping[str, Any] | None = None) -> None:
        self._shown: list[int] = []  # the envs of the latest ``ready_obs``; empty after a step or reset
        super().__init__(env_fn, cfg)
        shape, dtype = getattr(self._reward_space, "shape", None), getattr(self._reward_space, "dtype", None)
        self._reward: Any = np.zeros((1,) if shape is None else shape, dtype or np.float32)  # the latest reward.
        self._returns: dict[int, float] = {}  # the returns of the current episodes so far

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, stacked by ascending env id: a ``tnp.ndarray``.

        Waits until an env is in the state RUN.

        Raises:
            AssertionError: the manager is closed.
            RuntimeError: no env can reach that state, or a reset in the background failed; then the manager is closed.
        """
        self._await_ready()
        self._shown = self.ready_env
        if not self._shown:
            raise StateError(f"expected an env that waits for an action, got {self._env_states}: call reset")
        return _as_tree(_stacked([self._ready_obs[env_id] for env_id in self._shown]))

    def reset(self, reset_param: dict[int, dict[str, Any] | None] | None = None) -> None:
        self._shown = []
        super().reset(reset_param)
        for env_id in list(self._returns) if reset_param is None else reset_param:
            self._returns.pop(env_id, None)

    def step(self, actions: Any) -> list[Any]:  # type: ignore[override]  # so it is in the original
        """Steps the envs of the latest ``ready_obs``; if that was not read, the envs in ``ready_obs_id``.

        Args:
            actions: a ``tnp.ndarray`` with a row for each of these envs, in their order, or a list of actions.

        Returns:
            A ``tnp.ndarray`` for each env, with the keys ``obs``, ``reward``, ``done``, ``info`` and ``env_id``. Keys
            of the info are changed to identifiers, and values that a treetensor cannot hold are omitted. With
            ``remuda={"faults": "restart"}`` an env that fails has its last observation again, a reward of 0 and
            ``info.abnormal``. It is done, with ``info.TimeLimit_truncated`` and the sum of the episode's rewards as
            ``info.eval_episode_return``. With ``dynamic_seed=False``, which evaluators use, it is not done, and another
            episode begins, because evaluators would count the episode that was cut off.

        Raises:
            AssertionError, TimeoutError, EOFError, Exception: see :meth:`SyncSubprocessEnvManager.step`.
        """
        if isinstance(actions, tnp.ndarray):
            actions = [part.squeeze(0) for part in tnp.split(actions, actions.shape[0])]
        timesteps = super().step(dict(zip(self._addressed(actions), actions, strict=False)))
        if self._faults.restarts:
            timesteps = {env_id: self._for_middleware(env_id, timestep) for env_id, timestep in timesteps.items()}
        return [_timestep_as_tree(env_id, timestep) for env_id, timestep in timesteps.items()]

    def _addressed(self, actions: Sequence[Any]) -> list[int]:
        """Returns the envs of the latest ``ready_obs``; if the number of actions differs, those in ``ready_obs_id``."""
        ready, (shown, self._shown) = self.ready_obs_id, (self._shown, [])
        return shown if len(shown) == len(actions) else ready

    def _for_middleware(self, env_id: int, timestep: Any) -> Any:
        """Returns a complete timestep for a failed env, because middleware converts every field to a tensor."""
        if is_fault_substitute(timestep):
            return self._stand_in(env_id)
        if not is_abnormal(timestep):
            self._reward = timestep.reward
            earned = self._returns.pop(env_id, 0.0) + _sum(timestep.reward)
            if not timestep.done:
                self._returns[env_id] = earned
        return timestep

    def _stand_in(self, env_id: int) -> Any:
        """Returns a timestep for an env that failed. It ends the episode as truncated, with the return so far.

        For evaluators the episode does not end, because they must not count it.
        """
        earned, done = self._returns.pop(env_id, 0.0), self._env_dynamic_seed is not False
        info: dict[str, Any] = {"abnormal": True}
        if done:
            info |= {"TimeLimit.truncated": True, "eval_episode_return": np.float32(earned)}
        return BaseEnvTimestep(self._ready_obs[env_id], _zeros(self._reward), done, info)


def _sum(reward: Any) -> float:
    if type(reward) is np.ndarray and reward.size == 1:
        return float(reward.item())
    if isinstance(reward, Mapping):
        return sum(map(_sum, reward.values()))
    numbers = np.asarray(reward)
    return float(numbers.sum()) if numbers.dtype.kind in "biuf" else 0.0


def _zeros(reward: Any) -> Any:
    if isinstance(reward, Mapping):
        return {key: _zeros(part) for key, part in reward.items()}
    return np.zeros_like(np.asarray(reward))


# -- trees -----------------------------------------------------------------------------------------------


def _timestep_as_tree(env_id: int, timestep: Any) -> Any:
    obs, reward, done, info = timestep
    info = remove_illegal_item(make_key_as_identifier(info))
    return _as_tree({"obs": obs, "reward": reward, "done": done, "info": info, "env_id": env_id})


def _as_tree(value: Any) -> Any:
    """Does the same as ``tnp.array``, which takes most of a step's time because it renders each leaf as text."""
    return tnp.ndarray(create_storage(_arrays(value))) if isinstance(value, _TREES) else np.array(value)


def _arrays(tree: Any) -> dict[str, Any]:
    return {key: _arrays(part) if isinstance(part, _TREES) else np.array(part) for key, part in tree.items()}


def _stacked(rows: Sequence[Any]) -> Any:
    """Stacks rows, which are trees or arrays, along a new first axis."""
    if not isinstance(rows[0], _TREES):
        return np.stack(rows)
    return {key: _stacked([row[key] for row in rows]) for key in rows[0].keys()}  # noqa: SIM118  # no dict perhaps


_TREES = (dict, TreeValue)
