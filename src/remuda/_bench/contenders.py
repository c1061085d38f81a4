"""The contenders of ``remuda bench``: a plain loop, remuda, Gymnasium and Stable-Baselines3."""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gymnasium import Space
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.utils import iterate

import remuda

from .workloads import EnvFactory, Workload


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

    @property
    def env_fns(self) -> list[EnvFactory]:
        return [self.workload.make_env] * self.num_envs


class Contender(ABC):
    """A way to step a batch of envs, to be measured. The constructor starts the workers and builds the envs."""

    name: ClassVar[str]
    """The name for ``--against``."""
    module: ClassVar[str] = "gymnasium"
    """The module that it needs."""
    package: ClassVar[str] = "gymnasium"
    """The package to install for that module."""
    obs: Any = None
    """The latest observations, set by `reset` and `step`: a row for each env."""
    rewards: Any = None
    """The rewards of the latest step: (n,)."""
    ends: Sequence[Any] = ()
    """Arrays of bool, (n,). An episode has ended in the latest step if it is True in any of them."""
    infos: Any = None
    """The infos of the latest step, in the contender's own format."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Resets all envs, and returns when all have been reset."""

    @abstractmethod
    def step(self, actions: Any) -> int:
        """Steps the envs, and reads observations, rewards and ends, like a learner. Returns the number of env steps.

        A step on which an env resets itself counts as an env step.
        """

    @abstractmethod
    def close(self) -> None: ...

    def begin_turn(self) -> None:  # noqa: B027 - most have nothing to do
        """Prepares the contender for its next turn. Contenders override it if steps are in flight between turns."""

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

    Like with Gymnasium's default autoreset, the step after the end of an episode is a reset.
    """

    name = "plain loop"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.env = plan.workload.make_env()
        self.is_done = False

    def reset(self, seed: int) -> None:
        self.env.reset(seed=seed)

    def step(self, actions: Any) -> int:
        env, is_done = self.env, self.is_done
        for action in actions:
            if is_done:
                env.reset()
                is_done = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                is_done = terminated or truncated
        self.is_done = is_done
        return len(actions)

    def close(self) -> None:
        self.env.close()

    def prepare(self, space: Space[Any], batch: Any) -> list[Any]:
        return list(iterate(space, batch))


class Remuda(Contender):
    """`remuda.Pool` with several envs for each worker."""

    name = "remuda"
    module, package = "remuda", "remuda-rl"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        method: Any = plan.start_method
        self.pool: Any = remuda.Pool(plan.env_fns, start_method=method, **self.options())

    def options(self) -> dict[str, Any]:
        """Returns options for the pool. It logs no advice, because the plan prescribes the settings."""
        return {"num_workers": self.plan.num_workers, "backend": self.plan.backend, "log_advice": False}

    def reset(self, seed: int) -> None:
        self.obs = self.pool.reset(seed=seed).obs

    def step(self, actions: Any) -> int:
        return self.read(self.pool.step(actions))

    def read(self, batch: remuda.Batch) -> int:
        self.obs, self.rewards, self.infos = batch.obs, batch.rewards, batch.infos
        self.ends = batch.terminations, batch.truncations
        return len(batch)

    def close(self) -> None:
        self.pool.close()

    def worker_pids(self) -> list[int]:
        return [worker.pid for worker in self.pool.workers if worker.pid is not None]


class Gymnasium(Contender):
    """Gymnasium's AsyncVectorEnv: one process for each env, shared memory for observations."""

    name = "gymnasium"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.envs = self.make()

    def make(self) -> Any:
        return AsyncVectorEnv(self.plan.env_fns, context=self.plan.start_method)

    def reset(self, seed: int) -> None:
        self.obs, self.infos = self.envs.reset(seed=seed)

    def step(self, actions: Any) -> int:
        self.obs, self.rewards, *self.ends, self.infos = self.envs.step(actions)
        return self.plan.num_envs

    def close(self) -> None:
        self.envs.close(terminate=True)  # an orderly close would wait for workers that may have died

    def worker_pids(self) -> list[int]:
        return pids(getattr(self.envs, "processes", ()))


class Sb3(Gymnasium):
    """Stable-Baselines3's SubprocVecEnv: one process for each env, all data through pipes."""

    name = "sb3"
    module = "stable_baselines3.common.vec_env"
    package = "stable-baselines3"

    def make(self) -> Any:
        return self.load().SubprocVecEnv(self.plan.env_fns, start_method=self.plan.start_method)

    def reset(self, seed: int) -> None:
        self.envs.seed(seed)
        self.obs = self.envs.reset()

    def close(self) -> None:
        self.envs.close()

    def prepare(self, space: Space[Any], batch: Any) -> list[Any]:
        return list(iterate(space, batch))


def pids(processes: Iterable[Any]) -> list[int]:
    """Returns the pids of worker objects. Workers without a ``pid``, such as threads, are omitted."""
    return [process.pid for process in processes if process.pid is not None]


def by_name(*contenders: type[Contender]) -> dict[str, type[Contender]]:
    return {contender.name: contender for contender in contenders}


PEERS = by_name(Gymnasium, Sb3)
"""The contenders of ``remuda bench`` beside the plain loop and remuda."""


class UnavailableError(Exception):
    """A named contender is unknown, or its library is not installed."""


def line_up(peers: Iterable[str], among: Mapping[str, type[Contender]] = PEERS) -> list[type[Contender]]:
    """Returns the plain loop, remuda, and the named peers, each once. Raises `UnavailableError`."""
    return [PlainLoop, Remuda, *(find(name, among) for name in dict.fromkeys(peers))]


def find(name: str, among: Mapping[str, type[Contender]] = PEERS) -> type[Contender]:
    """Returns the contender of that name. Raises `UnavailableError`."""
    if name not in among:
        raise UnavailableError(f"unknown peer {name!r}: expected one of {', '.join(among)}")
    contender = among[name]
    if not contender.is_installed():
        raise UnavailableError(f'peer {name!r} is not installed: pip install "{contender.package}"')
    return contender
