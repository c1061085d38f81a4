"""Contenders in a benchmark: their interface, the plain loop, and remuda."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector.utils import iterate

from remuda import Batch, Part

from .workloads import EnvFactory, Workload, touch

Workers: TypeAlias = Literal["planned", "all but one", "one", "one an env", "auto", "auto or none"]
"""The choice of a pool's number of workers. With "auto or none" the caller steps the envs if that is faster."""


@dataclass(frozen=True)
class Plan:
    """The settings of a benchmark, which are the same for every contender."""

    workload: Workload
    num_envs: int
    num_workers: int
    """The number of workers if a worker can host several envs; other contenders start one per env."""
    backend: str = "process"
    """remuda's backend."""
    start_method: str | None = None
    """The start method of processes, if the contender has a choice; None: its own default."""
    seed: int = 0
    min_envs: int | None = None
    """The number of results for which a contender waits, if it can continue with some of the envs; None: all."""
    background_resets: bool = False
    """Whether finished envs reset while others step, if the contender can do that."""
    spares: int = 0
    """Envs that replace resetting ones for a while, if the contender has spares."""
    loops: int | None = None
    """The number of plain loops in the ideal; None: one for each core."""
    lead_in: float = 0.0
    """The minimum of seconds to step before each turn without counting, until the mix of steps and resets is steady."""

    @property
    def env_fns(self) -> list[EnvFactory]:
        return [self.workload.make_env] * self.num_envs

    def pool_options(self, workers: Workers) -> dict[str, Any]:
        """Returns options for a pool. Faces accept the same options."""
        numbers = {
            "planned": self.num_workers,
            "all but one": max(1, self.num_workers - 1),
            "one": 1,
            "one an env": None,
            "auto": "auto",
            "auto or none": "auto",
        }
        backend = "auto" if workers == "auto or none" and self.backend == "process" else self.backend
        # The pool logs no advice, because the benchmark prescribes the settings.
        return {"num_workers": numbers[workers], "backend": backend, "advise": False}


class Contender(ABC):
    """A way to step a batch of envs, to be measured. The constructor starts the workers and builds the envs."""

    name: ClassVar[str]
    """The name for ``--against``."""
    module: ClassVar[str]
    """The module that it needs."""
    package: ClassVar[str]
    """The package to install for that module."""
    workload: Workload
    obs: Any = None
    """The latest observations, set by `reset` and `step`."""
    ends: Sequence[Any] = ()
    """Arrays of bool. An episode has ended in the latest `step` if it is True in any of them."""
    counts_steps: ClassVar[bool] = False
    """Whether `step` returns the number of env steps instead of rewards."""
    learning_seconds: float = 0.0
    """Time spent on learning so far."""

    @abstractmethod
    def __init__(self, plan: Plan) -> None: ...

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Resets all envs, and returns when all have been reset."""

    @abstractmethod
    def step(self, actions: Any) -> Any:
        """Makes ``num_envs`` env steps or fewer, and reads observations, rewards and an info key, like a learner.

        Returns the rewards, or their sum; see `Workload.reward_is_steps`.
        """

    @abstractmethod
    def close(self) -> None: ...

    def begin_turn(self, seed: int) -> None:  # noqa: B027 - most have nothing to do
        """Prepares the contender for its next turn. Contenders override it if steps are in flight between turns."""

    def observations(self) -> Any:
        """Returns the observations for a policy: a row for each env."""
        return self.obs

    def dones(self) -> npt.NDArray[np.bool_]:
        """Returns for each env whether the latest `step` has ended its episode: (n,) bool."""
        dones: npt.NDArray[np.bool_] = np.logical_or.reduce([np.asarray(end, np.bool_) for end in self.ends])
        return dones

    @property
    def parts(self) -> Sequence[Contender]:
        """The parts that step alternately: the contender alone, or its two halves."""
        return (self,)

    def forget(self) -> None:
        """Drops the observations, because they are views of memory that is about to be freed."""
        for part in (self, *self.parts):
            part.obs, part.ends = None, ()

    def send(self, actions: Any) -> None:
        """Begins a step with the actions of a policy: an array with a row for each env."""
        self._actions = actions

    def finish(self) -> Any:
        """Ends the step that `send` began, and returns the result of `step`. A contender that cannot step in the
        background makes the whole step here."""
        return self.step(self._actions)

    @classmethod
    def is_for(cls, workload: Workload) -> bool:
        """Returns whether the contender can step the workload's env. A contender with its own envs may not have it."""
        return True

    def prepare(self, space: Space[Any], batch: Any) -> Any:
        """Converts a batch of actions, an element of ``space``, for `step`. This happens before the measurement."""
        return batch

    def worker_pids(self) -> list[int]:
        """Returns the pids of the processes that step envs; empty if this process steps them."""
        return []

    @classmethod
    def is_installed(cls) -> bool:
        return importlib.util.find_spec(cls.module.partition(".")[0]) is not None

    @classmethod
    def load(cls) -> Any:
        """Imports the contender's module in advance, so that the import does not count as start-up."""
        return importlib.import_module(cls.module)


class PlainLoop(Contender):
    """One env in a bare Python loop. The ideal of a benchmark is the speed of this loop times the number of cores.

    Like Gymnasium's default autoreset, the step after the end of an episode is a reset. It counts as a step unless
    `Workload.reward_is_steps`. The loop counts these steps itself, because adding up rewards would slow it down.
    """

    name = "plain loop"
    module = package = "gymnasium"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._env = plan.workload.make_env()
        self._done = False

    def reset(self, seed: int) -> None:
        self._env.reset(seed=seed)

    def step(self, actions: Any) -> int:
        env, done, info_key = self._env, self._done, self.workload.info_key
        resets = 0
        for action in actions:
            if done:
                _, info = env.reset()
                done = False
                resets += 1
            else:
                _, _, terminated, truncated, info = env.step(action)
                done = terminated or truncated
            if info_key is not None:
                info.get(info_key)
        self._done = done
        return len(actions) - resets

    def close(self) -> None:
        self._env.close()

    def prepare(self, space: Space[Any], batch: Any) -> list[Any]:
        """Returns the actions as a list, repeated until its length is a multiple of `Workload.period`."""
        actions = list(iterate(space, batch))
        period = self.workload.period
        return list(itertools.islice(itertools.cycle(actions), -(-len(actions) // period) * period))


class Remuda(Contender):
    """`remuda.Pool` with several envs for each worker."""

    name = "remuda"
    module, package = "remuda", "remuda-rl"
    workers: ClassVar[Workers] = "planned"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        options = {**plan.pool_options(self.workers), **self._more(plan)}
        self._pool: Any = self.load().Pool(plan.env_fns, start_method=plan.start_method, **options)

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {}

    def reset(self, seed: int) -> None:
        self.obs = self._pool.reset(seed=seed).obs

    def step(self, actions: Any) -> Any:
        return self._read(self._pool.step(actions))

    def _read(self, batch: Batch) -> Any:
        self.obs, self.ends = batch.obs, (batch.terminated, batch.truncated)
        touch(batch.obs)
        if self.workload.info_key is not None:
            batch.infos.stack().get(self.workload.info_key)
        return batch.reward

    def close(self) -> None:
        self.forget()
        self._pool.close()

    def worker_pids(self) -> list[int]:
        return [worker.pid for worker in self._pool.workers if worker.pid is not None]


class InHalves(Contender):
    """A contender that steps one half of its envs while the policy, on a core of its own, acts for the other half."""

    _halves: Sequence[Any]
    """Contenders with `env_ids`."""

    workers: ClassVar[Workers] = "all but one"

    @property
    def parts(self) -> Sequence[Contender]:
        return self._halves

    def reset(self, seed: int) -> None:
        for half in self._halves:
            half.reset(seed)

    def step(self, actions: Any) -> Any:
        for half in self._halves:
            half.send(actions[half.env_ids])
        return np.concatenate([half.finish() for half in self._halves])


class RemudaSplit(InHalves, Remuda):
    """`remuda.Pool`, split into two halves that step alternately."""

    name = "remuda-split"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._halves = [_Half(plan.workload, half) for half in self._pool.split(2)]


class _Half(Remuda):
    def __init__(self, workload: Workload, pool: Part) -> None:
        self.workload, self._pool, self.env_ids = workload, pool, pool.env_ids

    def send(self, actions: Any) -> None:
        self._pool.send(actions)

    def finish(self) -> Any:
        return self._read(self._pool.recv())


class RemudaSupervised(Remuda):
    """`remuda.Pool` with restarts and deadlines: shows the cost of supervision if nothing fails."""

    name = "remuda-supervised"

    def _more(self, plan: Plan) -> dict[str, Any]:
        deadlines = {"step_timeout": 60.0, "reset_timeout": 60.0} if plan.backend == "process" else {}
        return {"faults": self.load().FaultPolicy("restart", **deadlines)}
