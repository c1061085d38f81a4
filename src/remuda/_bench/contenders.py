"""The interface of a contender in a benchmark; the plain loop, and remuda itself."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from gymnasium import Space
from gymnasium.vector.utils import iterate

from remuda import Batch

from .workloads import EnvFactory, Workload, touch


@dataclass(frozen=True)
class Plan:
    """What every contender is asked to do."""

    workload: Workload
    num_envs: int
    num_workers: int
    """Workers of the contenders that can host several envs in one; the others start one per env."""
    backend: str = "process"
    """remuda's backend."""
    start_method: str | None = None
    """How processes are started, where the contender lets one choose; None: each one's own default."""
    seed: int = 0
    min_envs: int | None = None
    """How many results those wait for that can go on with some of the envs; None: all."""
    background_resets: bool = False
    """Finished envs reset while others step, where the contender can do that."""
    spares: int = 0
    """Envs that stand in for those that reset, where the contender has such."""
    loops: int | None = None
    """The ideal is so many plain loops at once; None: one for each core."""
    lead_in: float = 0.0
    """Seconds, at least, that are stepped before each turn and not counted: until the envs are in their stride."""

    @property
    def env_fns(self) -> list[EnvFactory]:
        return [self.workload.make_env] * self.num_envs


class Contender(ABC):
    """One way to step a batch of envs. The constructor starts the workers and builds the envs."""

    name: ClassVar[str]
    """As given to ``--against``."""
    module: ClassVar[str]
    """The module it needs."""
    package: ClassVar[str]
    """What to give pip to have that module."""
    workload: Workload

    @abstractmethod
    def __init__(self, plan: Plan) -> None: ...

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Reset all envs, and return once all have."""

    @abstractmethod
    def step(self, actions: Any) -> Any:
        """Make ``num_envs`` env steps, or fewer, and read what a learner reads: observations, rewards, one info key.

        Returns the rewards, or their sum: see `Workload.reward_is_steps`.
        """

    @abstractmethod
    def close(self) -> None: ...

    def begin_turn(self, seed: int) -> None:  # noqa: B027 - most have nothing to do
        """Called before each turn: for those whose envs go on by themselves when nobody steps them."""

    def prepare(self, space: Space[Any], batch: Any) -> Any:
        """A batch of actions, an element of ``space``, in the form `step` takes; it is not timed."""
        return batch

    def worker_pids(self) -> list[int]:
        """The processes that step envs; empty when this one does it."""
        return []

    @classmethod
    def is_installed(cls) -> bool:
        return importlib.util.find_spec(cls.module.partition(".")[0]) is not None

    @classmethod
    def load(cls) -> Any:
        """Import the module, so that importing is not counted as start-up."""
        return importlib.import_module(cls.module)


class PlainLoop(Contender):
    """One env in a bare Python loop: the measure of all others, times the cores.

    As in Gymnasium's default autoreset, the step after an episode's end is a reset, and counts as a step (but where the
    rewards count: it takes them for granted, so that its pace does not suffer from adding them up).
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
        """As many actions as whole periods have, and no fewer than the batch has."""
        actions = list(iterate(space, batch))
        period = self.workload.period
        return list(itertools.islice(itertools.cycle(actions), -(-len(actions) // period) * period))


class Remuda(Contender):
    """`remuda.Pool` with several envs a worker."""

    name = "remuda"
    module = package = "remuda"

    def __init__(self, plan: Plan) -> None:
        self.workload = plan.workload
        self._pool = self.load().Pool(
            plan.env_fns,
            num_workers=self._num_workers(plan),
            backend=plan.backend,
            start_method=plan.start_method,
            advise=False,  # the table is the advice
            **self._more(plan),
        )

    def _more(self, plan: Plan) -> dict[str, Any]:
        return {}

    def _num_workers(self, plan: Plan) -> int | None:
        return plan.num_workers

    def reset(self, seed: int) -> None:
        self._pool.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self._read(self._pool.step(actions))

    def _read(self, batch: Batch) -> Any:
        touch(batch.obs)
        if self.workload.info_key is not None:
            batch.infos.stack().get(self.workload.info_key)
        return batch.reward

    def close(self) -> None:
        self._pool.close()

    def worker_pids(self) -> list[int]:
        return [worker.pid for worker in self._pool.workers if worker.pid is not None]


class RemudaPerEnv(Remuda):
    """`remuda.Pool` as it is by default: one env a worker."""

    name = "remuda-per-env"

    def _num_workers(self, plan: Plan) -> int | None:
        return None


class RemudaSupervised(Remuda):
    """`remuda.Pool` that restarts what fails, and has deadlines: what supervision costs where nothing fails."""

    name = "remuda-supervised"

    def _more(self, plan: Plan) -> dict[str, Any]:
        deadlines = {"step_timeout": 60.0, "reset_timeout": 60.0} if plan.backend == "process" else {}
        return {"faults": self.load().FaultPolicy("restart", **deadlines)}
