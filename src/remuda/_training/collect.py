"""Fills one rollout after another with a policy, and measures which way to step the envs is the fastest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from remuda import Part, Pool, Rollout, RolloutStep
from remuda._error_frames import holds_nothing
from remuda._training.acting import Actor, Policy, check_policy
from remuda._training.arguments import check_count, check_seed

_AGAIN_AFTER = 50  # all ways of stepping are measured again after this number of rollouts.
_GAIN = 1.1  # `PLAIN` is used, unless another way of stepping is faster by this factor


class Steps(Protocol):
    """A pool, or a vector env on a pool."""

    @property
    def num_envs(self) -> int: ...
    def rollout(self, steps: int, columns: Any = None, parts: int = 1) -> Rollout: ...


@dataclass(frozen=True)
class SteppingMode:
    """A way to step the envs of a rollout.

    Attributes:
        parts: See `Pool.rollout`.
        min_envs: See `Rollout.partial`; None: all envs, or those of a part, step together.
    """

    parts: int = 1
    min_envs: int | None = None

    def turns(self, rollout: Rollout) -> Iterator[RolloutStep]:
        return iter(rollout) if self.min_envs is None else rollout.partial(self.min_envs)


PLAIN = SteppingMode()


def collect(
    pool: Steps,
    policy: Policy,
    *,
    steps: int,
    parts: int | None = None,
    min_envs: int | None = None,
    seed: int | None = None,
) -> Collector:
    """Fills one rollout after another with the actions of a policy::

        pool.reset(seed=0)
        for rollout in remuda.collect(pool, policy, steps=128):
            learn(rollout)

    It measures which way of stepping is the fastest: all envs together; in halves, each while the policy works on the
    other ("double buffering"); or the half of the envs that is ready first, so that no env waits for the slowest. The
    first rollouts are filled in each of these ways in turn, and the following ones in the fastest; the others are tried
    again from time to time. With halves, `env_ids` have another order. Which envs are ready first depends on timing.
    With `parts=1` all envs always step together.

    Args:
        pool: A `Pool` or a vector env of remuda. Its envs have been reset.
        policy: A function of the observations of k envs, batched like `Batch.obs`. It returns k actions, or these and a
            dict of columns to store with them: arrays of k rows each, `{"value": values}`. (Actions that are
            themselves a pair with a dict need such a dict, which may be empty.) If the policy has a method `act`, that
            is called instead. A torch module gets tensors on its device, without gradients, and may return tensors;
            columns of bfloat16 are stored as float32. A policy with a parameter `context` also gets a `PolicyContext`:
            the ids of the envs, the starts of episodes, a generator, and the policy's own state for each env.
        steps: The number of steps of each env in a rollout.
        parts: The number of parts to step the envs in; 1: all together. None: measure.
        min_envs: Step the envs that are ready, at least this number of them. None: measure.
        seed: The seed of `PolicyContext.rng`, from 0 up; None: a random seed.

    Returns:
        An endless iterator of full rollouts.

    Raises:
        ValueError, TypeError: An argument is wrong: both `parts` and `min_envs` are given, for example, or `pool` is
            neither a pool nor a vector env of remuda; or the pool has no rollouts (see `Pool.rollout`).
        NotImplementedError: `pool` is a manager of DI-engine or ML-Agents, ALF's envs, or on a cluster.
        ClosedError: The pool is closed.
        Exception: During the iteration, `Pool.rollout` or the policy raised it. This ends the iterator.
    """
    envs = _part_of(pool)
    check_policy(policy)
    count, rng = check_count("steps", steps), np.random.default_rng(check_seed(seed))
    if parts is not None and min_envs is not None:
        raise ValueError(f"expected parts or min_envs, got both ({parts} and {min_envs})")
    width = envs._engine.layout.width
    divisions = 1 if parts is None else check_count("parts", parts, envs.num_envs // width)
    envs._check_rollout(count, divisions)
    if min_envs is not None:
        least = check_count("min_envs", min_envs, envs.num_envs)
        if least % width:
            raise ValueError(f"expected min_envs to be a multiple of vector_size={width}, got {least}")
        ways = [SteppingMode(min_envs=least)]
    elif parts is not None or envs.num_envs < 2 * width or envs._engine.setup.backend == "serial":
        ways = [SteppingMode(divisions)]
    else:
        ready = SteppingMode(min_envs=envs.num_envs // width // 2 * width)
        ways = [PLAIN, SteppingMode(parts=2), ready] if isinstance(envs, Pool) else [PLAIN, ready]
    return Collector(pool, Actor(policy, envs._engine.layout.num_slots, rng), count, ways)


def _part_of(pool: Any) -> Part:
    """Returns the pool or part of a vector env; returns a pool or part unchanged.

    Raises:
        TypeError: It is neither a pool nor a vector env.
        NotImplementedError: It is a face without rollouts; the message has the reason.
    """
    envs = pool if isinstance(pool, Part) else getattr(pool, "pool", None)
    if not isinstance(envs, Part):
        raise TypeError(
            f"expected a remuda.Pool, or a vector env of remuda.gymnasium or remuda.sb3, got {type(pool).__name__}"
        )
    return envs


class Collector(Iterator[Rollout]):
    """The iterator that `collect` returns. It yields rollouts that a policy has filled.

    Attributes:
        filled: The number of rollouts so far.
    """

    def __init__(self, pool: Steps, actor: Actor, steps: int, ways: list[SteppingMode]) -> None:
        self._pool, self._actor, self._steps, self._ways = pool, actor, steps, ways
        self._seconds: dict[SteppingMode, float] = {}  # for each way of stepping, the duration of its latest rollout
        self.filled = 0

    @property
    def parts(self) -> int:
        """The number of parts into which the next rollout divides the envs."""
        return self._next_way.parts

    @property
    def min_envs(self) -> int | None:
        """The least number of envs that step together in the next rollout; None: all envs, or all of a part."""
        return self._next_way.min_envs

    @holds_nothing
    def __next__(self) -> Rollout:
        way = self._next_way
        begin = time.perf_counter()
        rollout = self._fill(way)
        if self.filled > 0:  # the first rollout is not measured, because it includes the warm-up
            self._seconds[way] = time.perf_counter() - begin
        self.filled += 1
        return rollout

    @property
    def _next_way(self) -> SteppingMode:
        if self.filled == 0 or len(self._ways) == 1:
            return self._ways[0]
        if (place := (self.filled - 1) % _AGAIN_AFTER) < len(self._ways):
            return self._ways[place]
        fastest = min(self._ways, key=self._seconds.__getitem__)
        return fastest if self._seconds[fastest] * _GAIN < self._seconds[self._ways[0]] else self._ways[0]

    def _fill(self, way: SteppingMode) -> Rollout:
        rollout = self._pool.rollout(self._steps, parts=way.parts)
        try:
            for step in way.turns(rollout):
                context = self._actor.context_for(step.env_ids, step.starts_episodes)
                actions, columns = self._actor.finish(self._actor.policy(step.obs, **context), **context)
                step.act(actions, **columns)
        except BaseException:
            rollout.close()
            raise
        finally:
            whole = _part_of(self._pool)
            if isinstance(whole, Pool) and way.parts > 1 and not whole.closed and not whole.pending:
                whole.split(1)
        return rollout
