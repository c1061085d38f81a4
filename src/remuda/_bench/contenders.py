"""The interface of a contender in a benchmark; the plain loop, and remuda itself."""

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
"""How a contender of ours chooses its workers. "auto or none": the caller steps the envs if that is faster."""


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

    def pool_options(self, workers: Workers) -> dict[str, Any]:
        """Returns the options that all of ours have: of a pool, and of a face on one."""
        numbers = {
            "planned": self.num_workers,
            "all but one": max(1, self.num_workers - 1),
            "one": 1,
            "one an env": None,
            "auto": "auto",
            "auto or none": "auto",
        }
        backend = "auto" if workers == "auto or none" and self.backend == "process" else self.backend
        return {"num_workers": numbers[workers], "backend": backend, "advise": False}  # the table is the advice


class Contender(ABC):
    """One way to step a batch of envs. The constructor starts the workers and builds the envs."""

    name: ClassVar[str]
    """As given to ``--against``."""
    module: ClassVar[str]
    """The module it needs."""
    package: ClassVar[str]
    """What to give pip to have that module."""
    workload: Workload
    obs: Any = None
    """What was observed last: what `reset` and `step` have set."""
    ends: Sequence[Any] = ()
    """Whose episodes the last `step` has ended: arrays of bool, any of which may say so."""
    counts_steps: ClassVar[bool] = False
    """Whether `step` returns how many env steps it has made, instead of rewards."""
    learning_seconds: float = 0.0
    """Spent so far on learning from what was collected."""

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

    def observations(self) -> Any:
        """What a policy is asked about: a row for each env."""
        return self.obs

    def dones(self) -> npt.NDArray[np.bool_]:
        """(n,): whose episodes the last `step` has ended."""
        dones: npt.NDArray[np.bool_] = np.logical_or.reduce([np.asarray(end, np.bool_) for end in self.ends])
        return dones

    @property
    def parts(self) -> Sequence[Contender]:
        """Those that are stepped in turns: halves, where a contender overlaps the policy with its envs."""
        return (self,)

    def forget(self) -> None:
        """Let go of what was observed: views of memory that is to be given back."""
        for part in (self, *self.parts):
            part.obs, part.ends = None, ()

    def send(self, actions: Any) -> None:
        """Begin a step with what a policy returns: an array with a row for each env."""
        self._actions = actions

    def finish(self) -> Any:
        """End it; the rest is as in `step`. Where a step cannot be left to go on by itself, all of it is here."""
        return self.step(self._actions)

    @classmethod
    def is_for(cls, workload: Workload) -> bool:
        """Whether it has the envs: those with envs of their own have not all."""
        return True

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
    """A contender in two halves, one of which steps while the policy has the other: one core is left to that."""

    _halves: Sequence[Any]
    """Contenders with `env_ids`, which can also `send` actions and `finish` a step, by its rewards."""

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
    """`remuda.Pool` in two halves."""

    name = "remuda-split"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._halves = [_Half(plan.workload, half) for half in self._pool.split(2)]


class _Half(Remuda):
    """One of them."""

    def __init__(self, workload: Workload, pool: Part) -> None:
        self.workload, self._pool, self.env_ids = workload, pool, pool.env_ids

    def send(self, actions: Any) -> None:
        self._pool.send(actions)

    def finish(self) -> Any:
        return self._read(self._pool.recv())


class RemudaSupervised(Remuda):
    """`remuda.Pool` that restarts what fails, and has deadlines: what supervision costs where nothing fails."""

    name = "remuda-supervised"

    def _more(self, plan: Plan) -> dict[str, Any]:
        deadlines = {"step_timeout": 60.0, "reset_timeout": 60.0} if plan.backend == "process" else {}
        return {"faults": self.load().FaultPolicy("restart", **deadlines)}
