"""Contenders with remuda: pools and faces with other numbers of workers, with halves, with restarts, or with spares."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space

import remuda
import remuda.gymnasium
from remuda._bench.contenders import Contender, Gymnasium, Plan, Remuda, Sb3, by_name

# -- the faces -----------------------------------------------------------------------------------------------


class RemudaGymnasium(Gymnasium):
    """`remuda.gymnasium.AsyncVectorEnv` with several envs for each worker."""

    name = "remuda-gymnasium"
    options = Remuda.options

    def make(self) -> Any:
        plan = self.plan
        return remuda.gymnasium.AsyncVectorEnv(
            plan.env_fns, shared_memory=False, context=plan.start_method, **self.options()
        )

    def close(self) -> None:
        self.envs.close()


class RemudaSb3(Sb3):
    """`remuda.sb3.SubprocVecEnv` with several envs for each worker, called like Stable-Baselines3's."""

    name = "remuda-sb3"
    options = Remuda.options

    @classmethod
    def load(cls) -> Any:
        super().load()
        return importlib.import_module("remuda.sb3.subproc_vec_env")

    def make(self) -> Any:
        return self.load().SubprocVecEnv(self.plan.env_fns, start_method=self.plan.start_method, **self.options())

    def prepare(self, space: Space[Any], batch: Any) -> Any:
        return batch if isinstance(batch, np.ndarray) else super().prepare(space, batch)


# -- with other options --------------------------------------------------------------------------------------


def with_options(name: str, contender: type[Contender], **changed: Any) -> type[Contender]:
    """Returns a contender like the given one, whose pool has other options."""

    def options(self: Any) -> dict[str, Any]:
        return {**Remuda.options(self), **changed}

    return type(name, (contender,), {"name": name, "options": options})


AUTO: Any = {"num_workers": "auto"}
AUTO_OR_CALLER: Any = {**AUTO, "backend": "auto"}
"""With these options the caller steps the envs if that is faster."""
RESTART = remuda.FaultPolicy("restart", step_timeout=60.0, reset_timeout=60.0)


# -- in halves -----------------------------------------------------------------------------------------------


class InHalves(Contender):
    """A contender that steps one half of its envs while the policy, on a core of its own, acts for the other half."""

    halves: Sequence[Any]

    def options(self) -> dict[str, Any]:
        return {**Remuda.options(self), "num_workers": max(1, self.plan.num_workers - 1)}  # type: ignore[arg-type]

    def reset(self, seed: int) -> None:
        for half in self.halves:
            half.reset(seed)

    def step(self, actions: Any) -> int:
        for half in self.halves:
            half.send(actions[half.env_ids])
        return sum(half.finish() for half in self.halves)


class RemudaSplit(InHalves, Remuda):
    """`remuda.Pool`, split into two halves that step alternately."""

    name = "remuda-split"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.halves = [_PoolHalf(plan, half) for half in self.pool.split(2)]


class _PoolHalf(Remuda):
    def __init__(self, plan: Plan, pool: remuda.Part) -> None:
        self.plan, self.pool, self.env_ids = plan, pool, pool.env_ids

    def send(self, actions: Any) -> None:
        self.pool.send(actions)

    def finish(self) -> int:
        return self.read(self.pool.recv())


class RemudaGymnasiumSplit(InHalves, RemudaGymnasium):
    """`remuda.gymnasium.AsyncVectorEnv`, split into two halves that step alternately."""

    name = "remuda-gymnasium-split"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.halves = [_FaceHalf(plan, half) for half in self.envs.split(2)]


class _FaceHalf(Gymnasium):
    def __init__(self, plan: Plan, envs: Any) -> None:
        self.plan, self.envs, self.env_ids = plan, envs, envs.env_ids

    def send(self, actions: Any) -> None:
        self.envs.step_async(actions)

    def finish(self) -> int:
        self.obs, self.rewards, *self.ends, self.infos = self.envs.step_wait()
        return len(self.env_ids)


# -- with partial batches ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnevenPlan(Plan):
    """A plan for envs whose steps or resets take unequally long."""

    min_envs: int = 1
    """The number of results for which a contender waits, if it can continue with some of the envs."""
    background_resets: bool = False
    """Whether finished envs reset while others step, if the contender can do that."""
    spares: int = 0
    """Envs that replace resetting ones for a while, if the contender has spares."""


class RemudaPartial(Remuda):
    """A pool with a worker for each env. A step receives at least `UnevenPlan.min_envs` results."""

    plan: UnevenPlan

    def __init__(self, plan: UnevenPlan) -> None:
        super().__init__(replace(plan, num_envs=plan.num_envs + plan.spares))  # a pool counts spares as envs

    def options(self) -> dict[str, Any]:
        resets = {"autoreset": "background"} if self.plan.background_resets else {}
        spares = {"spares": self.plan.spares} if self.plan.spares else {}
        return {**super().options(), "num_workers": None, **resets, **spares}

    def begin_turn(self) -> None:
        """Resets all envs. Otherwise the envs that waited between turns would start, and later end, all at once."""
        self.pool.discard()
        self.pool.send_reset(seed=self.plan.seed)

    def step(self, actions: Any) -> int:
        batch = self.pool.recv(min_envs=self.plan.min_envs)
        env_steps, env_ids = self.read(batch), batch.env_ids
        if self.plan.background_resets:  # a finished env resets in the background and needs no action
            env_ids = env_ids[~(batch.terminations | batch.truncations)]
        if env_ids.size:
            self.pool.send(actions[env_ids], env_ids)
        return env_steps


CONTENDERS = by_name(
    with_options("remuda-1-per-env", Remuda, num_workers=None),
    with_options("remuda-auto", Remuda, **AUTO),
    with_options("remuda-restart", Remuda, faults=RESTART),
    RemudaSplit,
    RemudaGymnasium,
    with_options("remuda-gymnasium-1-per-env", RemudaGymnasium, num_workers=None),
    with_options("remuda-gymnasium-1", RemudaGymnasium, num_workers=1),
    with_options("remuda-gymnasium-auto", RemudaGymnasium, **AUTO_OR_CALLER),
    with_options("remuda-gymnasium-caller", RemudaGymnasium, num_workers=1, backend="serial"),
    RemudaGymnasiumSplit,
    RemudaSb3,
    with_options("remuda-sb3-1-per-env", RemudaSb3, num_workers=None),
    with_options("remuda-sb3-auto", RemudaSb3, **AUTO_OR_CALLER),
)
"""The contenders with remuda beside `Remuda` itself, by name."""
