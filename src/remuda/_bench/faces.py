"""Contenders: remuda's faces of Gymnasium and of Stable-Baselines3."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space

import remuda.gymnasium

from .contenders import InHalves, Plan, Workers
from .peers import GymnasiumVector, Sb3
from .workloads import Workload, touch


class RemudaGymnasium(GymnasiumVector):
    """`remuda.gymnasium.AsyncVectorEnv` with several envs for each worker."""

    name = "remuda-gymnasium"
    workers: ClassVar[Workers] = "planned"
    _envs: Any

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        options = plan.pool_options(self.workers)
        self._envs = remuda.gymnasium.AsyncVectorEnv(
            plan.env_fns, shared_memory=False, context=plan.start_method, **options
        )


class RemudaGymnasiumSplit(InHalves, RemudaGymnasium):
    """`remuda.gymnasium.AsyncVectorEnv`, split into two halves that step alternately."""

    name = "remuda-gymnasium-split"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._halves = [_Half(plan.workload, half) for half in self._envs.split(2)]


class _Half(GymnasiumVector):
    _envs: Any

    def __init__(self, workload: Workload, envs: Any) -> None:
        self.workload, self._envs, self.env_ids = workload, envs, envs.env_ids

    def send(self, actions: Any) -> None:
        self._envs.step_async(actions)

    def finish(self) -> Any:
        self.obs, rewards, *self.ends, _ = self._envs.step_wait()
        touch(self.obs)
        return rewards


class RemudaSb3(Sb3):
    """`remuda.sb3.SubprocVecEnv` with several envs for each worker, called like Stable-Baselines3's."""

    name = "remuda-sb3"
    workers: ClassVar[Workers] = "planned"

    @classmethod
    def load(cls) -> Any:
        super().load()
        return importlib.import_module("remuda.sb3.subproc_vec_env")

    def _more(self, plan: Plan) -> dict[str, Any]:
        return plan.pool_options(self.workers)

    def prepare(self, space: Space[Any], batch: Any) -> Any:
        return batch if isinstance(batch, np.ndarray) else super().prepare(space, batch)
