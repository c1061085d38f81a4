"""Measurement of an env's costs, on clocks that only the env advances."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from old_gymnasium import GYMNASIUM_MODES, sync_vector_env
from pool_envs import CountingEnv, HookedEnv

from remuda._worker.measuring import Moment, measure, measure_in_worker, read_clocks


class Clock:
    """Clocks that only an env advances."""

    def __init__(self) -> None:
        self.now = Moment(100.0, 10.0, 1.0)

    def spend(self, cpu: float = 0.0, waiting: float = 0.0, queued: float = 0.0, stolen: float = 0.0) -> None:
        self.now = Moment(
            self.now.wall + cpu + waiting + queued + stolen,
            self.now.cpu + cpu,
            self.now.queued + queued,
            self.now.sleeps + (waiting > 0),
        )

    def read(self) -> Moment:
        return self.now


@dataclass(frozen=True)
class Times:
    """Seconds of each kind per call. `first` is added once."""

    cpu: float = 0.0
    waiting: float = 0.0
    queued: float = 0.0
    stolen: float = 0.0
    first: float = 0.0


class TimedEnv(CountingEnv):
    def __init__(self, clock: Clock, step: Times, reset: Times = Times(), length: int = 1_000_000) -> None:
        super().__init__(length=length)
        self._clock, self._times = clock, {"step": step, "reset": reset}

    def _spend(self, kind: str) -> None:
        times = self._times[kind]
        self._clock.spend(times.cpu + times.first, times.waiting, times.queued, times.stolen)
        self._times[kind] = replace(times, first=0.0)

    def reset(self, **arguments: Any) -> Any:
        self._spend("reset")
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._spend("step")
        return super().step(action)


SHORT = 1e-4
COSTS: dict[str, tuple[Times, Times, int, tuple[float, float], range]] = {
    "computes": (Times(SHORT), Times(), 10**6, (SHORT, SHORT), range(300, 10**6)),
    "waits": (Times(SHORT, waiting=5e-3), Times(), 10**6, (5.1e-3, SHORT), range(10, 21)),
    "waits long": (Times(waiting=1.0), Times(), 10**6, (1.0, 0.0), range(1, 2)),
    "queueing is no waiting": (Times(SHORT, queued=5e-3), Times(), 10**6, (SHORT, SHORT), range(1, 10**6)),
    # The kernel of a virtual machine cannot measure stolen time. It only measures that the thread did not sleep.
    "stolen time is no waiting": (Times(SHORT, stolen=5e-3), Times(), 10**6, (SHORT, SHORT), range(1, 10**6)),
    "first calls do not count": (Times(SHORT, first=2.0), Times(first=3.0), 10**6, (SHORT, SHORT), range(1, 10**6)),
    "steps share a reset": (Times(SHORT), Times(1e-3, waiting=1e-3), 20, (2e-4, 1.5e-4), range(1, 10**6)),
}
"""The times of steps and resets, the steps of an episode, and the expected cost (wall and CPU) and number of steps."""


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_of_a_step(name: str) -> None:
    step, reset, length, cost, steps = COSTS[name]
    clock = Clock()
    found = measure(TimedEnv(clock, step, reset, length), clock.read)
    assert found.cost is not None
    assert (found.cost.wall, found.cost.cpu) == pytest.approx(cost, rel=0.1 if length == 20 else 1e-6, abs=1e-12)
    assert (found.steps in steps, found.problem) == (True, None)


def test_the_clocks_are_read_less_often_than_every_step() -> None:
    clock, looks = Clock(), []
    found = measure(TimedEnv(clock, Times(cpu=1e-6)), lambda: looks.append(1) or clock.read())
    assert found.steps >= 30_000
    assert len(looks) < 100


def test_the_bytes_of_an_observation() -> None:
    class Nested(CountingEnv):
        def observe(self) -> Any:
            return {"camera": np.zeros((4, 5), np.uint8), "rest": (np.zeros(3), "text")}

    assert measure(Nested(), seconds=1e-4).obs_bytes == 20 + 24


def test_real_clocks() -> None:
    one, other = read_clocks(), read_clocks()
    assert other.wall >= one.wall
    assert other.cpu >= one.cpu
    time.sleep(1e-3)
    assert read_clocks().sleeps > other.sleeps
    assert measure(CountingEnv(length=3), seconds=1e-3).cost is not None


# -- actions and resets -----------------------------------------------------------------------------------


class MaskedEnv(CountingEnv):
    """An env with one valid action, which changes at each step. `mask_in` selects where the env publishes its mask."""

    def __init__(self, mask_in: str) -> None:
        super().__init__(length=7)
        self.mask_in = mask_in
        self.action_space = spaces.Discrete(5, start=1 if mask_in == "shifted" else 0)

    def mask(self) -> Any:
        return np.eye(5, dtype=np.int8)[self.total_steps % 5]

    def _publish(self, obs: Any) -> Any:
        info = {"action_mask": self.mask()} if self.mask_in in ("info", "shifted") else {}
        return {"obs": obs, "action_mask": self.mask()} if self.mask_in == "obs" else obs, info

    def reset(self, **arguments: Any) -> Any:
        return self._publish(super().reset(**arguments)[0])

    def step(self, action: Any) -> Any:
        if not self.mask()[action - self.action_space.start]:
            raise ValueError(f"illegal: {action}")
        obs, *rest, _ = super().step(action)
        obs, info = self._publish(obs)
        return obs, *rest, info


class MaskMethodEnv(MaskedEnv):
    def action_masks(self) -> Any:
        return self.mask()


class OwnStepsEnv(CountingEnv):
    """An env that needs options in each reset, and has its own loop for the measurement."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options == {"level": 1}
        return super().reset(seed=seed)

    def steps_to_measure(self) -> Iterator[None]:
        while True:
            self.reset(options={"level": 1})
            over = False
            while not over:
                over = self.step(0)[2]
                yield


@pytest.mark.parametrize(
    "env",
    [
        *(MaskedEnv("info"), MaskedEnv("shifted"), MaskedEnv("obs"), gymnasium.Wrapper(MaskMethodEnv("method"))),
        HookedEnv(reset=lambda env: (env.observe(), {"action_mask": [1, 2, 3]})),  # an unusable mask, which is ignored
        OwnStepsEnv(length=3),
        *(sync_vector_env([lambda: CountingEnv(length=3)] * 2, mode) for mode in GYMNASIUM_MODES),
    ],
    ids=["info", "shifted", "obs", "method", "unusable", "own loop", *GYMNASIUM_MODES],
)
def test_envs_are_measured_by_valid_actions_resets_and_their_own_loops(env: Any) -> None:
    found = measure(env, seconds=1e-3)
    assert (found.problem, found.steps >= 10) == (None, True)


@pytest.mark.parametrize(("steps", "is_known"), [(0, False), (5, False), (200, True)])
def test_the_cost_of_an_env_that_raises_is_that_of_its_earlier_steps(steps: int, is_known: bool) -> None:
    def stumble(env: HookedEnv, _: Any) -> None:
        if env.total_steps > steps:
            raise ValueError("illegal")

    found = measure(HookedEnv(step=stumble), seconds=1000.0)
    assert found.problem == "ValueError: illegal"
    assert (found.cost is not None) == is_known


# -- envs with processes -----------------------------------------------------------------------------------


def test_an_env_that_has_started_a_process_is_not_measured() -> None:
    pid = os.fork()
    if pid == 0:  # the child has no children of its own
        found = measure_in_worker(CountingEnv(), ())
        simulator = subprocess.Popen(["sleep", "60"])
        refused = measure_in_worker(CountingEnv(), ())
        simulator.kill()
        simulator.wait()
        os._exit(found.cost is None or "has started a process" not in (refused.problem or ""))
    assert os.waitpid(pid, 0)[1] == 0
