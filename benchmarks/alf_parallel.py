"""ALF's parallel envs and those of `remuda.alf`, on the same ALF envs, in one run.

ALF is not on PyPI: give its checkout on PYTHONPATH, with the compiled part that `alf/environments/make_penv.py` makes.
All of it takes about two minutes; ``--quick`` is a rough look, ``--only vector`` a part.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from script import parse_options, publish
from tables import figure, head, row, verdict

from remuda._bench.results import Entry, Turn, paired_ratio
from remuda._system import machine
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
THEIRS, EACH, SHARED = "alf", "remuda-per-env", "remuda"


class FixedAlfEnv(AlfEnvironment):  # type: ignore[misc]
    """Returns the same observation, and sleeps as long as it is told. Episodes of each env are of a fixed length, which
    differs a little among envs, as ends of episodes do."""

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

    def _told(self, step_type: Any, action: Any) -> Any:
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
        return self._told(StepType.FIRST, np.int64(0))

    def _step(self, action: Any) -> Any:
        if self._steps == self._episode_steps:
            return self.reset()
        self._steps += 1
        if self._step_sleep:
            time.sleep(self._step_sleep)
        return self._told(StepType.LAST if self._steps == self._episode_steps else StepType.MID, action)


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
    """A workload at a number of envs, and how many times the rate of ALF's own each of ours is to reach."""

    workload: str
    num_envs: int
    goals: dict[str, float] = field(default_factory=lambda: {EACH: 1.0, SHARED: 3.0})
    spares: int = 0


CASES = (
    Case("vector", 8),
    Case("vector", 32),
    Case("image", 8),
    Case("image", 32),
    Case("resets", 16, {EACH: 1.0}),
    Case("resets", 16, {EACH: 1.0}, spares=4),
)


@dataclass(frozen=True)
class Result:
    """What each contender of a case did."""

    case: Case
    entries: dict[str, Entry]

    def ratio(self, name: str) -> float | None:
        return paired_ratio(self.entries[name], self.entries[THEIRS])


def main() -> None:
    options = parse_options(
        __doc__, workloads=list(WORKLOADS), peers=[THEIRS], against=[THEIRS], seconds=5.0, quick=1.0
    )
    results = []
    for case in (case for case in CASES if case.workload in options.only):
        print(f"{case.workload}, {case.num_envs} envs, {case.spares} spares ...", file=sys.stderr, flush=True)
        results.append(race(case, options))
    figures = ({"case": vars(r.case), "rates": {n: e.rates for n, e in r.entries.items()}} for r in results)
    publish("alf", markdown(results, options), figures, options)


def race(case: Case, options: argparse.Namespace) -> Result:
    """All are built first, then they take turns."""
    constructors = [WORKLOADS[case.workload][1]] * (case.num_envs + case.spares)
    spares = {"num_spare_envs_for_reload": case.spares}
    makers: dict[str, Callable[[], Any]] = {
        THEIRS: lambda: Original(constructors, **spares),
        EACH: lambda: FastParallelEnvironment(constructors, advise=False, **spares),
        SHARED: lambda: FastParallelEnvironment(constructors, num_workers=usable_cores(), advise=False),
    }
    entries = {name: Entry(name) for name in (THEIRS, *case.goals)}
    envs: dict[str, Any] = {}
    try:
        for name in entries:
            envs[name] = makers[name]()
            envs[name].reset()
            step(envs[name], itertools.repeat(None, WARM_UP))
        for _ in range(options.rounds):
            for name, entry in entries.items():
                entry.turns.append(take_turn(envs[name], options.seconds / options.rounds))
    finally:
        for env in envs.values():
            env.close()
    return Result(case, entries)


def take_turn(env: Any, seconds: float) -> Turn:
    gc.collect()
    step(env, until(seconds * LEAD_IN))
    begin = time.perf_counter()
    count = step(env, until(seconds))
    return Turn(count * env.batch_size, time.perf_counter() - begin, 0.0)


def until(seconds: float) -> Iterator[None]:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        yield


def step(env: Any, turns: Iterator[None]) -> int:
    """As a learner does that looks at every tensor."""
    action = torch.zeros(env.batch_size, dtype=torch.int64)
    count = 0
    for _ in turns:
        time_step = env.step(action)
        _ = time_step.step_type, time_step.reward, time_step.observation, time_step.env_info["metric"]
        count += 1
    return count


def markdown(results: Sequence[Result], options: argparse.Namespace) -> Iterator[str]:
    """One row for each goal."""
    yield from head(["workload", "envs", "spares", "goal", "reached", "", "steps/s", f"{THEIRS}, steps/s"])
    for result in results:
        case = result.case
        for name, goal in case.goals.items():
            ratio, rates = result.ratio(name), [result.entries[n].steps_per_second or 0.0 for n in (name, THEIRS)]
            cells = [
                WORKLOADS[case.workload][0],
                str(case.num_envs),
                str(case.spares),
                f"{name} >= {goal:g} x {THEIRS}",
            ]
            yield row([*cells, figure(ratio), verdict(goal, ratio), *(f"{rate:,.0f}" for rate in rates)])
    yield ""
    yield (
        f"{machine.describe()}; {usable_cores()} cores; {SHARED} has as many workers, the others one for each env. "
        f"{THEIRS} is its FastParallelEnvironment. Medians of {options.rounds} interleaved rounds, "
        f"{options.seconds:g} s a contender."
    )


if __name__ == "__main__":
    main()
