"""How many workers: what a step costs, what is advised, and what `num_workers="auto"` takes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_envs import CountingEnv, counting, hooked

from remuda import EnvError, InvalidEnvError, Pool, PoolStats
from remuda._engine.startup.advice import (
    SWITCH_SECONDS,
    StepCost,
    advice,
    batch_seconds,
    best_num_workers,
    measure_steps,
    observed_cost,
)

MICROSECOND = 1e-6


def cost(wall: float, cpu: float | None = None) -> StepCost:
    return StepCost(wall * MICROSECOND, (wall if cpu is None else cpu) * MICROSECOND)


@pytest.mark.parametrize(
    ("step", "num_envs", "cores", "best"),
    [
        (cost(5), 64, 2, 2),  # cheap: as many workers as cores
        (cost(5), 1, 8, 1),
        (cost(10_000), 64, 8, 8),  # dear, but all CPU: the cores are the limit
        (cost(10_000, 1), 64, 2, 64),  # it only waits: all at the same time
        (cost(10_000, 1), 4, 8, 4),
    ],
)
def test_the_best_number_of_workers(step: StepCost, num_envs: int, cores: int, best: int) -> None:
    assert best_num_workers(step, num_envs, cores) == best


costs = st.builds(lambda wall, share: StepCost(wall, wall * share), st.floats(1e-7, 10), st.floats(0, 1))


@given(costs, st.integers(1, 500), st.integers(1, 128))
def test_the_best_number_is_possible_and_nearly_the_fastest(step: StepCost, num_envs: int, cores: int) -> None:
    best = best_num_workers(step, num_envs, cores)
    assert 1 <= best <= num_envs
    time = batch_seconds(step, num_envs, best, cores)
    for other in {1, cores, num_envs} - {best}:
        if other <= num_envs:
            assert time <= 1.2 * batch_seconds(step, num_envs, other, cores)


@given(costs, st.integers(1, 500), st.integers(1, 128), st.data())
def test_advice_is_given_when_it_is_worth_it_and_names_its_figures(
    step: StepCost, num_envs: int, cores: int, data: st.DataObject
) -> None:
    num_workers = data.draw(st.integers(1, num_envs))
    best = best_num_workers(step, num_envs, cores)
    gain = batch_seconds(step, num_envs, num_workers, cores) / batch_seconds(step, num_envs, best, cores)
    text = advice(step, num_envs, num_workers, cores)
    assert (text is not None) == (best != num_workers and gain >= 3)
    if text:
        assert f"num_workers={best} would step these {num_envs} envs" in text
        assert f"than num_workers={num_workers}:" in text
        assert f"{cores} cores" in text
    assert advice(step, num_envs, best, cores) is None


def stats(**changes: Any) -> PoolStats:
    return dataclasses.replace(PoolStats(100, 10, 1.0, 1.0, 0.5, (50, 50)), **changes)


def test_observed_cost_tells_waiting_from_queueing_and_computing() -> None:
    busy = observed_cost(stats(env_seconds=1.0, cpu_seconds=1.0), 0.0, num_workers=2, cores=2)
    assert (busy.wall, busy.cpu) == pytest.approx((0.01, 0.01))
    waiting = observed_cost(stats(env_seconds=1.0, cpu_seconds=0.1), 0.0, num_workers=2, cores=2)
    assert (waiting.wall, waiting.cpu) == pytest.approx((0.01, 0.001))
    queueing = observed_cost(stats(env_seconds=1.0, cpu_seconds=0.1), 0.9, num_workers=2, cores=2)
    assert (queueing.wall, queueing.cpu) == pytest.approx((0.001, 0.001))
    crowded = observed_cost(stats(env_seconds=1.0, cpu_seconds=1.0), 0.0, num_workers=9, cores=2)
    assert crowded.cpu == pytest.approx(0.01 - SWITCH_SECONDS)


def test_a_step_is_measured_where_it_runs() -> None:
    env = CountingEnv(length=3)
    measured = measure_steps(env, seconds=0.001)
    assert env.total_steps >= 10
    assert env.episodes > 3
    assert measured.wall > 0


class OwnStepsEnv(CountingEnv):
    """Cannot be reset without options; says itself how it is stepped."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options == {"level": 1}
        return super().reset(seed=seed, options=options)

    def steps_to_measure(self) -> Iterator[None]:
        while True:
            self.reset(options={"level": 1})
            over = False
            while not over:
                over = self.step(0)[2]
                yield


def test_an_env_is_measured_as_it_says_it_is_run() -> None:
    env = OwnStepsEnv(length=3)
    assert measure_steps(env, seconds=0.001).wall > 0
    assert env.total_steps >= 10
    with Pool([OwnStepsEnv] * 2, num_workers="auto") as pool:
        pool.reset(options={"level": 1})


def stumble(*_: Any) -> None:
    raise ValueError("cannot be played at random")


def test_auto_says_so_where_an_env_cannot_be_measured() -> None:
    with pytest.raises(InvalidEnvError, match=r"num_workers='auto', got: env 0 .*ValueError.*; say how many") as caught:
        Pool(hooked(2, (0,), step=stumble), num_workers="auto")
    assert isinstance(caught.value.__cause__, EnvError)


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_auto_picks_a_possible_number(backend: Any) -> None:
    with Pool(counting(6), num_workers="auto", backend=backend) as pool:
        assert 1 <= pool.num_workers <= 6
        assert pool.reset().obs[:, 0].tolist() == list(range(6))


def test_advice_is_said_once_and_only_if_wanted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda._engine.pool.pool.advice", lambda *_: "do something else")
    for advise in (True, False):
        with caplog.at_level(logging.WARNING, "remuda"), Pool(counting(1), backend="thread", advise=advise) as pool:
            pool.reset()
            for _ in range(600):
                pool.step([0])
    assert [record.getMessage() for record in caplog.records] == ["do something else"]
