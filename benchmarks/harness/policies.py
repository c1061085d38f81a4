"""Contenders with a policy in the loop: the policy receives the observations, and the envs receive its actions."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Entry, Result
from remuda._bench.workloads import probe_spaces, sample_actions

from .envs import iterations_for, work
from .parts import parts_of


class Policy(Protocol):
    """Chooses an action for each row of observations."""

    def __call__(self, obs: Any) -> Any: ...


MakePolicy: TypeAlias = Callable[[Plan], Policy]

ACTION_BATCHES = 64
"""Batches of actions that are sampled beforehand and then taken in turn."""
THINK_US = (0, 100, 300, 1000)
POLICIES = (*(f"core-{us}" for us in THINK_US), *(f"sleep-{us}" for us in THINK_US[1:]), "net")


def make_policy(name: str, torch_threads: int = 1) -> MakePolicy:
    """Returns a policy's factory. "core-300" works for 300 us on a core, "sleep-300" sleeps, and "net" is a network."""
    if name == "net":
        return functools.partial(Network, threads=torch_threads)
    where, us = name.split("-")
    seconds = int(us) / 1e6
    if where == "sleep":  # stands for a policy that computes on a GPU
        return functools.partial(Thinking, spend=lambda share: time.sleep(seconds * share))
    iterations = iterations_for(seconds) if seconds else 0
    return functools.partial(Thinking, spend=lambda share: work(round(iterations * share)))


class Thinking:
    """A policy that spends time and returns actions that were sampled beforehand.

    Half of the time for a whole batch is spent on each call, the other half in proportion to the rows.
    """

    def __init__(self, plan: Plan, spend: Callable[[float], object]) -> None:
        """``spend``: receives a share from 0 to 1, and uses up this share of the policy's time for a whole batch."""
        space = probe_spaces(plan.workload).action_space
        sampled = sample_actions(space, plan.num_envs, ACTION_BATCHES, plan.seed)
        self._batches = itertools.cycle([np.asarray(batch) for batch in sampled.batches])
        self._spend, self._num_envs = spend, plan.num_envs

    def __call__(self, obs: Any) -> Any:
        self._spend(0.5 + 0.5 * len(obs) / self._num_envs)
        return next(self._batches)[: len(obs)]


class Network:
    """The policy network of `ppo.py`: an MLP for vectors, a CNN for images."""

    def __init__(self, plan: Plan, threads: int) -> None:
        import torch

        from . import ppo

        torch.set_num_threads(threads)
        found = probe_spaces(plan.workload)
        self._agent = ppo.Agent(found.observation_space, found.action_space)

    def __call__(self, obs: Any) -> Any:
        return self._agent.act(obs)[0]


class PolicyAlone(Contender):
    """A contender that calls the policy for whole batches, without envs, to measure the policy's time."""

    name = "policy alone"
    make_policy: MakePolicy

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._policy = type(self).make_policy(plan)
        space = probe_spaces(plan.workload).observation_space
        self.obs = np.stack([space.sample()] * plan.num_envs)

    def reset(self, seed: int) -> None: ...

    def step(self, actions: Any) -> int:
        self._policy(self.obs)
        return len(self.obs)

    def close(self) -> None: ...


class Collecting(Contender):
    """Steps another contender with actions from a policy. A step steps each part of the envs, one after another."""

    kind: type[Contender]
    make_policy: MakePolicy

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._policy, self._inner = type(self).make_policy(plan), self.kind(plan)
        self._is_under_way = False

    def reset(self, seed: int) -> None:
        self._inner.reset(seed)
        self._parts = parts_of(self._inner)

    def step(self, actions: Any) -> int:
        env_steps = 0
        for part in self._parts:
            if self._is_under_way:
                env_steps += part.finish()  # the part stepped while the policy served the other part
            part.send(self._policy(part.obs))
        if not self._is_under_way:
            self._is_under_way = True
            return self.step(actions)
        return env_steps

    def close(self) -> None:
        self._inner.close()

    def worker_pids(self) -> list[int]:
        return self._inner.worker_pids()


def with_policy(kind: type[Contender], make_policy: MakePolicy) -> type[Contender]:
    """Returns a contender class that steps another contender with the policy's actions, under the same name."""
    fields: dict[str, Any] = {"make_policy": staticmethod(make_policy), "name": kind.name}
    if kind is PolicyAlone:
        return type(kind.__name__, (kind,), fields)
    same = {"kind": kind, "module": kind.module, "package": kind.package, "load": kind.load}
    return type(f"Collecting{kind.__name__}", (Collecting,), {**fields, **same})


def lockstep_bound(result: Result, policy: Entry) -> list[float]:
    """Returns each round's bound for lockstep, in which policy and envs take turns, and all cores share the envs' work.

    The rate is 1 / (policy + env work / cores) steps a second, from the rates of the policy alone and the plain loop.
    """
    loops = [rate * result.cores for rate in result.plain.rates]
    return [1 / (1 / alone + 1 / ideal) for alone, ideal in zip(policy.rates, loops, strict=False)]
