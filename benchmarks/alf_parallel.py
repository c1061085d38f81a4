"""Measures the speed of ALF's parallel envs and of `remuda.alf`'s, in turns, on the same ALF envs.

ALF is not on PyPI: give its checkout on PYTHONPATH, with the compiled part that `alf/environments/make_penv.py` makes.
The whole run takes about two minutes; ``--quick`` is a rough look, ``--only vector`` a part.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from harness.options import parse_options
from harness.session import Session
from harness.tables import conditions, figure, table, verdict

from remuda._system.cores import usable_cores

try:
    from alf.data_structures import StepType, TimeStep
    from alf.environments.alf_environment import AlfEnvironment
    from alf.environments.fast_parallel_environment import FastParallelEnvironment as Original
    from alf.tensor_specs import BoundedTensorSpec, TensorSpec
except ImportError as error:
    sys.exit(f"expected ALF and its compiled part on PYTHONPATH, got {error!r}")

from remuda.alf import FastParallelEnvironment

LEAD_IN = 0.1
"""Share of a turn that is stepped first and not counted."""
WARM_UP = 50
"""Steps of each contender before the first turn."""
ALF, EACH, SHARED = "alf", "remuda-1-per-env", "remuda"


class FixedAlfEnv(AlfEnvironment):  # type: ignore[misc]
    """An ALF env that returns the same observation after a fixed sleep. `env_id` determines its episodes' length."""

    def __init__(
        self, env_id: int, spec: Any, *, episode_steps: int = 200, step_sleep: float = 0.0, reset_sleep: float = 0.0
    ) -> None:
        super().__init__()
        self._spec, self._episode_steps = spec, episode_steps + 5 * (env_id % 8)
        self._step_sleep, self._reset_sleep = step_sleep, reset_sleep
        self._observation = np.ones(spec.shape, spec.dtype_str)
        self._env_id, self._steps = np.int32(env_id), self._episode_steps

    def observation_spec(self) -> Any:
        return self._spec

    def action_spec(self) -> Any:
        return BoundedTensorSpec((), torch.int64, 0, 1)

    def env_info_spec(self) -> Any:
        return {"metric": TensorSpec(())}

    def _time_step(self, step_type: Any, action: Any) -> Any:
        return TimeStep(
            step_type=step_type,
            reward=np.float32(1),
            discount=np.float32(step_type != StepType.LAST),
            observation=self._observation,
            prev_action=action,
            env_id=self._env_id,
            env_info={"metric": np.float32(2)},
        )

    def _reset(self) -> Any:
        self._steps = 0
        if self._reset_sleep:
            time.sleep(self._reset_sleep)
        return self._time_step(StepType.FIRST, np.int64(0))

    def _step(self, action: Any) -> Any:
        if self._steps == self._episode_steps:
            return self.reset()
        self._steps += 1
        if self._step_sleep:
            time.sleep(self._step_sleep)
        return self._time_step(StepType.LAST if self._steps == self._episode_steps else StepType.MID, action)


VECTOR = functools.partial(FixedAlfEnv, spec=TensorSpec((4,)))
IMAGE = functools.partial(FixedAlfEnv, spec=TensorSpec((4, 84, 84), torch.uint8))
RESETS = functools.partial(VECTOR, episode_steps=50, step_sleep=1e-3, reset_sleep=50e-3)

WORKLOADS: dict[str, tuple[str, Callable[..., Any]]] = {
    "vector": ("4 float32, returns at once", VECTOR),
    "image": ("(4, 84, 84) uint8, returns at once", IMAGE),
    "resets": ("1 ms a step; 50 ms a reset, after 50 to 85 steps", RESETS),
}


@dataclass(frozen=True)
class Case:
    """A workload with a number of envs. `goals`: the ratio to ALF's own speed that each remuda contender must reach."""

    workload: str
    num_envs: int
    goals: dict[str, float] = field(default_factory=lambda: {EACH: 1.0, SHARED: 3.0})
    spares: int = 0

    def make(self, contender: str) -> Any:
        constructors = [WORKLOADS[self.workload][1]] * (self.num_envs + self.spares)
        if contender == ALF:
            return Original(constructors, num_spare_envs_for_reload=self.spares)
        if contender == SHARED:
            return FastParallelEnvironment(constructors, num_workers=usable_cores(), log_advice=False)
        return FastParallelEnvironment(constructors, num_spare_envs_for_reload=self.spares, log_advice=False)


CASES = (
    Case("vector", 8),
    Case("vector", 32),
    Case("image", 8),
    Case("image", 32),
    Case("resets", 16, {EACH: 1.0}),
    Case("resets", 16, {EACH: 1.0}, spares=4),
)
Rates = dict[str, list[float]]
"""Env steps a second of each contender in each round."""


def main() -> None:
    options = parse_options(__doc__, workloads=WORKLOADS, seconds=5.0, quick=1.0, rounds=5)
    session = Session(options)
    cases = (case for case in CASES if case.workload in options.only)
    found = list(session.measured(cases, lambda case: measure(case, session)))
    columns = ["workload", "envs", "spares", "goal", "reached", "", "steps/s", f"{ALF}, steps/s"]
    lines = [table(columns, (row for case, rates in found for row in rows(case, rates)))]
    lines.append(
        f"{conditions(options.rounds, options.seconds)} {SHARED} has as many workers as cores, the others one for each "
        f"env. {ALF} is its FastParallelEnvironment."
    )
    session.publish("alf_parallel", lines, ({"case": vars(case), "rates": rates} for case, rates in found))


def measure(case: Case, session: Session) -> Rates:
    """Builds all contenders, and lets them take turns."""
    with ExitStack() as stack:
        turns = {}
        for name in (ALF, *case.goals):
            envs = stack.enter_context(closing(case.make(name)))
            envs.reset()
            step(envs, itertools.repeat(None, WARM_UP))
            turns[name] = functools.partial(take_turn, envs, session.options.seconds / session.options.rounds)
        return session.rounds(f"{case.workload}, {case.num_envs} envs, {case.spares} spares", turns)


def take_turn(envs: Any, seconds: float) -> float:
    step(envs, until(seconds * LEAD_IN))
    begin = time.perf_counter()
    count = step(envs, until(seconds))
    return float(count * envs.batch_size / (time.perf_counter() - begin))


def until(seconds: float) -> Iterator[None]:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        yield


def step(envs: Any, turns: Iterable[None]) -> int:
    """Steps the envs once for each item of `turns`, and reads the tensors like a learner. Returns the step count."""
    action = torch.zeros(envs.batch_size, dtype=torch.int64)
    count = 0
    for _ in turns:
        time_step = envs.step(action)
        _ = time_step.step_type, time_step.reward, time_step.observation, time_step.env_info["metric"]
        count += 1
    return count


def rows(case: Case, rates: Rates) -> Iterator[list[str]]:
    """Yields a table row for each goal of a case."""
    for name, goal in case.goals.items():
        ratio = median(ours / alf for ours, alf in zip(rates[name], rates[ALF], strict=True))
        where = [WORKLOADS[case.workload][0], str(case.num_envs), str(case.spares)]
        reached = [f"{name} >= {goal:g} x {ALF}", figure(ratio), verdict(goal, ratio)]
        yield [*where, *reached, *(f"{median(rates[one]):,.0f}" for one in (name, ALF))]


if __name__ == "__main__":
    main()
