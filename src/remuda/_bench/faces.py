"""Contenders: remuda's Gymnasium face, with all the numbers of workers that it may have, and in two halves."""

from __future__ import annotations

from typing import Any

import remuda.gymnasium

from .contenders import InHalves, NumWorkers, Plan
from .peers import GymnasiumVector, pids
from .workloads import Workload, touch


class RemudaGymnasium(GymnasiumVector):
    """`remuda.gymnasium.AsyncVectorEnv` with several envs a worker."""

    name = "remuda-gymnasium"
    _envs: Any

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._envs = remuda.gymnasium.AsyncVectorEnv(
            plan.env_fns,
            shared_memory=False,
            context=plan.start_method,
            num_workers=self._num_workers(plan),
            backend=self._backend(plan),  # type: ignore[arg-type]
            advise=False,
        )

    def _num_workers(self, plan: Plan) -> NumWorkers:
        return plan.num_workers

    def _backend(self, plan: Plan) -> str:
        return plan.backend

    def worker_pids(self) -> list[int]:
        return pids(self._envs.processes)


class RemudaGymnasiumPerEnv(RemudaGymnasium):
    """The same as it is by default: one env a worker."""

    name = "remuda-gymnasium-per-env"

    def _num_workers(self, plan: Plan) -> NumWorkers:
        return None


class RemudaGymnasiumOne(RemudaGymnasium):
    """The same with one worker, which leaves the other cores to the policy."""

    name = "remuda-gymnasium-1"

    def _num_workers(self, plan: Plan) -> NumWorkers:
        return 1


class RemudaGymnasiumAuto(RemudaGymnasium):
    """The same with as many workers as a measurement says, or none: then the caller steps the envs."""

    name = "remuda-gymnasium-auto"

    def _num_workers(self, plan: Plan) -> NumWorkers:
        return "auto"

    def _backend(self, plan: Plan) -> str:
        return plan.open_backend


class RemudaGymnasiumSplit(InHalves, RemudaGymnasium):
    """The same in two halves."""

    name = "remuda-gymnasium-split"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._halves = [_Half(plan.workload, half) for half in self._envs.split(2)]


class _Half(GymnasiumVector):
    """One of them."""

    _envs: Any

    def __init__(self, workload: Workload, envs: Any) -> None:
        self.workload, self._envs, self.env_ids = workload, envs, envs.env_ids

    def send(self, actions: Any) -> None:
        self._envs.step_async(actions)

    def finish(self) -> Any:
        self.obs, rewards, *self.ends, _ = self._envs.step_wait()
        touch(self.obs)
        return rewards
