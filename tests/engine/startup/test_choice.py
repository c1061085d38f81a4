"""The choice of the number of workers from measurements, and the test whether factories build the same kind of env."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_envs import CountingEnv, HookedEnv, LevelEnv, counting

from remuda._engine.startup.auto import are_alike
from remuda._engine.stats.choice import WAKE_SECONDS, batch_seconds, best_num_workers, choose, one_each
from remuda._engine.stats.durations import span
from remuda._worker.measuring import Measured, StepCost

MICROSECOND = 1e-6


def cost(wall: float, cpu: float | None = None) -> StepCost:
    """Returns a step cost. `wall` and `cpu` are microseconds."""
    return StepCost(wall * MICROSECOND, (wall if cpu is None else cpu) * MICROSECOND)


def measured(wall: float, cpu: float | None = None, obs_bytes: int = 16) -> Measured:
    return Measured(cost(wall, cpu), 1000, obs_bytes)


NOOP, CARTPOLE, CHEETAH, MILLISECOND = measured(0.5), measured(4), measured(50), measured(1000)
GAME = measured(5000, 100)
IMAGE = measured(0.5, obs_bytes=1_000_000)


# -- the table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "num_envs", "cores", "workers"),
    [
        (NOOP, 8, 2, 1),  # a wake-up of the second worker costs more time than the worker saves
        (CARTPOLE, 4, 2, 1),
        (CARTPOLE, 8, 2, 1),  # the second core is worth more to the policy
        (CARTPOLE, 64, 2, 2),
        (CARTPOLE, 256, 2, 2),
        (CARTPOLE, 64, 1, 1),
        (CARTPOLE, 1, 8, 1),
        (CHEETAH, 4, 2, 1),
        (CHEETAH, 8, 2, 2),
        (CHEETAH, 64, 2, 2),
        (MILLISECOND, 8, 2, 2),  # steps use CPU time only, so the cores are the limit
        (MILLISECOND, 64, 16, 16),
        (MILLISECOND, 2, 16, 2),  # there are at most as many workers as envs
        (GAME, 8, 2, 8),  # the env only waits, so all envs can wait at the same time
        (GAME, 64, 2, 64),
        (GAME, 64, 1, 64),
        (IMAGE, 8, 2, 2),  # the step is cheap, but the worker has to write a large observation
    ],
)
def test_the_choice_of_the_number_of_workers(env: Measured, num_envs: int, cores: int, workers: int) -> None:
    chosen = choose(env, num_envs, cores)
    assert (chosen.num_workers, chosen.backend) == (workers, "process")
    assert f"{workers} worker" in str(chosen)
    assert f"{cores} core" in str(chosen)


@pytest.mark.parametrize(
    ("env", "num_envs", "wake", "backend"),
    [
        (NOOP, 8, 20, "serial"),
        (NOOP, 64, 20, "serial"),
        (CARTPOLE, 4, 20, "serial"),
        (CARTPOLE, 8, 20, "serial"),
        (CARTPOLE, 64, 20, "process"),
        (CARTPOLE, 64, 100, "serial"),  # a busy machine
        (CHEETAH, 8, 40, "process"),
        (CHEETAH, 8, 200, "serial"),
        (IMAGE, 8, 20, "process"),
        (GAME, 2, 1000, "process"),
        (NOOP, 8, None, "process"),  # an option needs processes
    ],
)
def test_the_caller_steps_the_envs_if_workers_save_little(
    env: Measured, num_envs: int, wake: float | None, backend: str
) -> None:
    chosen = choose(env, num_envs, 2, None if wake is None else wake * MICROSECOND)
    assert chosen.backend == backend
    if backend == "serial":
        assert chosen.num_workers == 1
        assert f"to wake a worker {span(wake * MICROSECOND)}" in chosen.reason


def test_the_caller_steps_a_single_env() -> None:
    chosen = choose(GAME, 1, 2, WAKE_SECONDS)
    assert (chosen.num_workers, chosen.backend) == (1, "serial")
    assert str(chosen) == "stepped by the caller: it is one env, a step of which takes 5 ms"
    assert choose(GAME, 1, 2).backend == "process"  # an option needs processes


def test_an_env_without_measurements_has_its_own_worker() -> None:
    chosen = choose(Measured(None, 3, 0, "ValueError: illegal move"), 5, 2, 1.0)
    assert chosen == one_each(5, "process", "env 0 cannot be measured (ValueError: illegal move)")
    assert (chosen.num_workers, chosen.backend) == (5, "process")


costs = st.builds(lambda wall, share: StepCost(wall, wall * share), st.floats(1e-7, 10), st.floats(0, 1))


@given(costs, st.integers(1, 500), st.integers(1, 128), st.floats(0, 1e-2))
def test_the_best_number_of_workers_is_nearly_the_fastest(
    step: StepCost, num_envs: int, cores: int, wake: float
) -> None:
    best = best_num_workers(step, num_envs, cores, wake)
    assert 1 <= best <= num_envs
    time = batch_seconds(step, num_envs, best, cores, wake)
    for other in {1, cores, num_envs} - {best}:
        if other <= num_envs:
            assert time <= 1.2 * batch_seconds(step, num_envs, other, cores, wake)


@given(costs, st.integers(1, 500), st.integers(1, 128), st.floats(0, 1e-2))
def test_the_caller_steps_the_envs_unless_workers_are_expected_to_be_faster_beside_a_policy(
    step: StepCost, num_envs: int, cores: int, wake: float
) -> None:
    chosen = choose(Measured(step, 100, 0), num_envs, cores, wake)
    loop = num_envs * (step.wall + 0.3 * MICROSECOND)  # includes the cost of writing a row
    fastest = batch_seconds(step, num_envs, best_num_workers(step, num_envs, cores, wake), cores, wake)
    if chosen.backend == "process":
        # the factor allows for the policy: its caches stay warm if workers step the envs
        assert fastest <= 1.2 * loop
    else:
        assert loop <= 1.1 * (fastest + num_envs * 0.3 * MICROSECOND)


# -- of one kind -------------------------------------------------------------------------------------------


def made(*arguments: Any, **named: Any) -> Callable[[], Any]:
    return lambda: CountingEnv(*arguments, **named)


class Maker:
    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed

    def make(self) -> Any:
        return CountingEnv(self.seed)

    def __call__(self) -> Any:
        return self.make()


def itself() -> Any:
    """Returns a function that refers to itself through a closure cell."""

    def build(again: bool = False) -> Any:
        return build

    return build


ONE = made(1)


ALIKE: list[tuple[Any, Any]] = [
    (ONE, ONE),
    (made(1), made(2)),
    (made(1, length=3), made(2, length=4)),
    (made(seed=None), made(seed=7)),
    (made("run-1/env-0.csv"), made("run-1/env-12.csv")),
    (made({"ports": [1, 2], "name": "a"}), made({"ports": [3, 4], "name": "a"})),
    (functools.partial(CountingEnv, 1), functools.partial(CountingEnv, 2)),
    (functools.partial(CountingEnv, tag=1), functools.partial(CountingEnv, tag=2)),
    (Maker("a", 1), Maker("a", 2)),
    (Maker("a", 1).make, Maker("a", 2).make),
    (itself(), itself()),
    (counting(2)[0], counting(2)[1]),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (CountingEnv, HookedEnv),
    (lambda: CountingEnv(1), lambda: HookedEnv(1)),
    (lambda: made("CartPole"), lambda: made("Pong")),
    (made("CartPole-v1"), made("ALE/Pong-v5")),
    (made(CountingEnv), made(LevelEnv)),
    (made([1, 2]), made([1, 2, 3])),
    (made({"map": "a"}), made({"map": "b"})),
    (made({"map": "a"}), made({"level": "a"})),
    (made(None), made("videos")),
    (functools.partial(CountingEnv, 1), functools.partial(HookedEnv, 1)),
    (Maker("a", 1), Maker("b", 1)),
    (Maker("a", 1), Maker("b", 1).make),
    (made(b"a"), made(b"b")),
]


@pytest.mark.parametrize(("pair", "alike"), [*((pair, True) for pair in ALIKE), *((pair, False) for pair in DIFFERENT)])
def test_factories_are_alike_if_they_build_the_same_kind_of_env(pair: tuple[Any, Any], alike: bool) -> None:
    one, other = pair
    assert are_alike([one, other]) == alike
    assert are_alike([one, one, other]) == alike


def test_factories_with_large_contents_are_compared_quickly() -> None:
    heaps = [made([[str(i) * 5] * 1000 for i in range(1000)]) for _ in range(2)]
    assert are_alike(heaps)
