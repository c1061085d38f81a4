"""Parallel envs as a `VecEnv` of Stable-Baselines3: each agent of each env is an env of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remuda import Batch
from remuda._faces.frameworks import FRAMEWORKS
from remuda._faces.pool_beneath import drop_pending
from remuda._keywords import seeds_apart
from remuda.pettingzoo.groups import zeros_of

with FRAMEWORKS["remuda.sb3"].needed():
    from stable_baselines3.common.vec_env import VecEnv


class AgentsVecEnv(VecEnv):
    """All agents of parallel envs, env by env: row `env * agents + agent`, the order of SuperSuit.

    An agent that ends is done, with its last observation as `terminal_observation`. Until its env begins a new episode,
    its row has zeros as observations and rewards, and is not done again. If an env fails, the agents that were there
    are done; the zeros of their `terminal_observation` are no observation.

    Attributes:
        envs: The `ParallelVectorEnv`; closing one closes the other.
    """

    def __init__(self, envs: Any) -> None:
        """`envs`: a `ParallelVectorEnv`."""
        if len(envs._agents.groups) > 1 or not envs._agents.in_same_step:
            raise ValueError(
                "expected agents with equal spaces and autoreset='same_step' for Stable-Baselines3, got "
                f"{len(envs._agents.groups)} groups of agents and autoreset={envs.pool.autoreset!r}"
            )
        self.envs, (self._group,) = envs, envs._agents.groups
        self._blank = zeros_of(self._group.observation_space)
        self._count = len(envs.possible_agents)
        super().__init__(envs.num_envs * self._count, self._group.observation_space, self._group.action_space)

    @seeds_apart
    def reset(self) -> Any:
        drop_pending(self.envs.pool)  # of a step or reset that failed or was interrupted
        seeds = self._seeds[:: self._count]
        options = self._options[:: self._count]
        batch = self.envs.pool.reset(
            seed=seeds if any(seed is not None for seed in seeds) else None,
            options=options if any(options) else None,
        )
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = self._infos(batch)
        return self._rows(batch.obs)

    def step_async(self, actions: Any) -> None:
        codec = self._group.action
        arrays, _ = codec.split_batch(actions, self.num_envs)
        by_env = [array.reshape(self.envs.num_envs, self._count, *array.shape[1:]) for array in arrays]
        self.envs.pool.send({self._group.name: codec.build_batch(by_env, [])})

    def step_wait(self) -> Any:
        batch = self.envs.pool.recv()
        rewards, terminations, truncations = self.envs._newest.numbers
        dones = (terminations | truncations).reshape(-1)
        infos, obs = self._infos(batch), self._rows(batch.obs)
        finals = None if batch.final_obs is None else self._rows(batch.final_obs)
        for row in np.flatnonzero(dones).tolist():
            env, agent = divmod(row, self._count)
            last = finals if batch.dones[env] else obs
            infos[row]["terminal_observation"] = self._blank if last is None else _row(last, row)
            infos[row]["TimeLimit.truncated"] = bool(truncations[env, agent] and not terminations[env, agent])
            if not batch.dones[env]:
                _clear(obs, row)
        return obs, rewards.reshape(-1).astype(np.float32), dones, infos

    def _rows(self, joint: Any) -> Any:
        """Returns the observations of all agents as copies, a row for each."""
        return _mapped(joint["agents"][self._group.name], lambda array: array.reshape(-1, *array.shape[2:]).copy())

    def _infos(self, batch: Batch) -> list[dict[str, Any]]:
        own = [info.get("final_info", info) for info in batch.infos]  # at the end of an episode, those of its last step
        return [dict(info.get(agent) or {}) for info in own for agent in self._group.agents]

    def close(self) -> None:
        self.envs.close()

    # -- calls, with an answer for each agent ------------------------------------------------------------

    def _envs_of(self, indices: Any) -> tuple[list[int], list[int]]:
        """Returns the envs of some rows, and the place among them of each row's env."""
        rows = self._get_indices(indices)
        envs = sorted({row // self._count for row in rows})
        return envs, [envs.index(row // self._count) for row in rows]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        envs, places = self._envs_of(indices)
        found = self.envs.get_attr(attr_name, envs)
        return [found[place] for place in places]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        self.envs.set_attr(attr_name, value, self._envs_of(indices)[0])

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        envs, places = self._envs_of(indices)
        found = self.envs.call(method_name, *method_args, env_ids=envs, **method_kwargs)
        return [found[place] for place in places]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Returns False for each row: Gymnasium's wrappers do not fit parallel envs."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[Any]:
        pictures: list[Any] = self.envs.render()
        return pictures


def _mapped(tree: Any, function: Any) -> Any:
    return {key: function(array) for key, array in tree.items()} if isinstance(tree, dict) else function(tree)


def _row(tree: Any, row: int) -> Any:
    return _mapped(tree, lambda array: array[row].copy())


def _clear(tree: Any, row: int) -> None:
    for array in tree.values() if isinstance(tree, dict) else [tree]:
        array[row] = 0
