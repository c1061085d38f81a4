"""Time steps of the ALF face equal, bit for bit, those of envs that the test steps one after another."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import alf
import numpy as np
import pytest
import torch
from alf.data_structures import StepType
from alf_face_envs import (
    CountingAlfEnv,
    NestedAlfEnv,
    OneAfterAnother,
    assert_same_time_step,
    batched_of,
    counting,
    hooked,
    random_actions,
)
from pairs import each, pairwise
from pool_envs import Gate, Gauge

from remuda.alf import FastParallelEnvironment, ParallelAlfEnvironment

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

STEPS = 60


def compare(ours: Any, reference: Any, steps: int = STEPS) -> None:
    """Steps `ours` and `reference` with the same actions, compares all time steps, and closes `ours`."""
    with ours:
        random = np.random.default_rng(5)
        got, expected = ours.reset(), reference.reset()
        assert_same_time_step(got, expected, "reset")
        for i in range(steps):
            actions = random_actions(ours.action_spec(), ours.batch_size, random)
            got, expected = ours.step(actions), reference.step(actions)
            assert_same_time_step(got, expected, f"step {i}")
            assert ours.current_time_step() is got
            if i % 20 == 19:
                assert_same_time_step(ours.reset(), reference.reset(), f"reset after step {i}")


def seeded(env: Any) -> Any:
    env.seed(list(range(env.batch_size if isinstance(env, OneAfterAnother) else len(env.envs))))
    return env


@each(
    options=[{}, {"num_workers": 1}, {"num_workers": 2}, {"max_concurrency": 1}],
    make=[NestedAlfEnv, functools.partial(CountingAlfEnv, length=7)],
)
def test_time_steps_are_the_same_for_any_number_of_workers(make: Any, options: dict[str, Any]) -> None:
    reference = OneAfterAnother([make] * 3, resets_ahead="max_concurrency" not in options)
    compare(FastParallelEnvironment([make] * 3, **options), reference)


@pytest.mark.parametrize("backend", ["thread", "serial"])
def test_time_steps_are_the_same_with_threads_and_serially(backend: Any) -> None:
    compare(FastParallelEnvironment([NestedAlfEnv] * 3, backend=backend), OneAfterAnother([NestedAlfEnv] * 3))


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_time_steps_are_the_same_with_other_start_methods(start_method: Any) -> None:
    ours = FastParallelEnvironment([NestedAlfEnv] * 2, start_serially=False, start_method=start_method)
    compare(ours, OneAfterAnother([NestedAlfEnv] * 2), steps=10)


@pytest.mark.parametrize("blocking", [False, True])
def test_the_older_class_returns_the_same_time_steps(blocking: bool) -> None:
    reference = OneAfterAnother([NestedAlfEnv] * 3, resets_ahead=not blocking)
    compare(ParallelAlfEnvironment([NestedAlfEnv] * 3, blocking=blocking), reference)


@pairwise(
    kind=[FastParallelEnvironment, ParallelAlfEnvironment],
    num_spares=[1, 3],
    make=[functools.partial(NestedAlfEnv, end=0.5), functools.partial(CountingAlfEnv, length=2)],
)
def test_spares_come_in_the_same_order(make: Any, num_spares: int, kind: Any) -> None:
    ours = kind([make] * (3 + num_spares), start_serially=False, num_spare_envs_for_reload=num_spares)
    seeds = list(range(3 + num_spares))
    reference = OneAfterAnother([make] * (3 + num_spares), num_spares)
    ours.seed(seeds)
    reference.seed(seeds)
    compare(ours, reference)


@pytest.mark.parametrize("num_workers", [None, 1])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_batched_envs_return_the_rows_of_as_many_single_envs(batch_size: int, num_workers: int | None) -> None:
    ours = FastParallelEnvironment(batched_of(NestedAlfEnv, batch_size, 2), num_workers=num_workers)
    reference = OneAfterAnother([NestedAlfEnv] * (2 * batch_size), resets_ahead=False)
    ours.seed([5, 6])
    reference.seed(list(range(5 * batch_size, 7 * batch_size)))
    assert (ours.batch_size, len(ours.envs)) == (2 * batch_size, 2)
    compare(ours, reference)


@pytest.mark.parametrize("num_spares", [0, 1])
def test_a_reset_uses_the_seeds(num_spares: int) -> None:
    """This includes envs that had reset in advance before they were seeded."""
    make, seeds = functools.partial(NestedAlfEnv, end=1), list(range(5, 7 + num_spares))
    with FastParallelEnvironment([make] * (2 + num_spares), num_spare_envs_for_reload=num_spares) as envs:
        runs = []
        for _ in range(2):
            envs.seed(seeds)
            runs.append([envs.reset()])
            runs[-1] += [envs.step(runs[-1][0].prev_action) for _ in range(3)]
        for one, other in zip(*runs, strict=True):
            assert_same_time_step(one, other)


def test_step_before_reset_is_a_reset() -> None:
    with FastParallelEnvironment(counting(2)) as envs:
        assert envs.current_time_step() is None
        assert envs.step(torch.tensor([5, 6])).step_type.tolist() == [StepType.FIRST] * 2
        assert envs.step(torch.tensor([5, 6])).reward.tolist() == [5, 6]


def test_a_step_after_the_last_one_resets_the_env() -> None:
    with FastParallelEnvironment([*counting(1, length=1), *counting(1, length=2, cut=True)]) as envs:
        envs.reset()
        time_steps = [envs.step(torch.tensor([3, 4])) for _ in range(4)]
    assert [step.step_type.tolist() for step in time_steps] == [[2, 1], [0, 2], [2, 0], [0, 1]]
    assert [step.discount.tolist() for step in time_steps] == [[0, 1], [1, 1], [0, 1], [1, 1]]
    assert [step.reward.tolist() for step in time_steps] == [[3, 4], [0, 4], [3, 0], [0, 4]]
    assert time_steps[1].observation[:, 1].tolist() == [2, 1]


@pytest.mark.parametrize("kind", [FastParallelEnvironment, ParallelAlfEnvironment])
def test_the_reset_begins_as_soon_as_an_episode_ends(kind: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with kind(hooked(2, length=1, autoreset=lambda _: gate.wait())) as envs:
        envs.reset()
        assert envs.step(torch.tensor([1, 1])).is_last().all()
        gate.let_pass()  # the reset has begun although no step was requested
        assert envs.step(torch.tensor([1, 1])).observation[:, 1].tolist() == [2, 2]


def test_blocking_envs_step_one_after_another(tmp_path: Path) -> None:
    gauge = Gauge(tmp_path / "gauge")

    def step(_: Any) -> None:
        gauge.enter()
        for _ in range(20):  # gives a second step time to begin, if steps ran in parallel
            os.sched_yield()
        gauge.leave()

    with ParallelAlfEnvironment(hooked(4, range(4), step=step), blocking=True) as envs:
        envs.reset()
        for _ in range(3):
            envs.step(torch.zeros(4, dtype=torch.int64))
    assert (gauge.entries(), gauge.peak()) == (12, 1)


def test_a_reset_ends_the_current_episode() -> None:
    with FastParallelEnvironment(counting(2, length=3)) as envs:
        envs.reset()
        envs.step(torch.tensor([1, 1]))
        again = envs.reset()
        assert again.is_first().all()
        assert again.observation[:, 1].tolist() == [2, 2]
        assert envs.step(torch.tensor([1, 1])).observation[:, 2].tolist() == [1, 1]


# -- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [1, 3, 10])
def test_a_held_time_step_is_never_overwritten(held: int) -> None:
    with FastParallelEnvironment(counting(2), num_workers=1) as envs:
        kept = [envs.reset()]
        for i in range(held):
            kept.append(envs.step(torch.tensor([i, i])))
        for _ in range(10):
            envs.step(torch.tensor([500, 500]))
        assert [step.observation[0, 3].item() for step in kept] == [-1, *range(held)]
        kept[0].observation[:] = 77  # it is yours
        kept[0].env_id[:] = 77
        time_step = envs.step(torch.tensor([1, 2]))
        assert (time_step.observation[:, 3].tolist(), time_step.env_id.tolist()) == ([1, 2], [0, 1])
    assert kept[0].observation.unique().tolist() == [77]


def test_a_held_row_is_never_overwritten() -> None:
    with FastParallelEnvironment(counting(2), num_workers=1) as envs:
        row = envs.reset().observation[1]
        for _ in range(10):
            envs.step(torch.tensor([5, 5]))
        assert row.tolist() == [1, 1, 0, -1]


def test_released_memory_is_reused() -> None:
    with FastParallelEnvironment(counting(2), num_workers=1, frames=2) as envs:
        places = set()
        for _ in range(20):
            places.add(envs.step(torch.tensor([5, 5])).observation.data_ptr())
        assert len(places) == 2  # of the latest time step, which the env holds, and of the one before


class OnTheGpu(torch.Tensor):
    """Stands in for the result of a tensor's ``cuda()`` on a machine without a GPU."""


def test_a_copy_on_a_gpu_keeps_its_cpu_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alf, "get_default_device", lambda: "cuda")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor.clone().as_subclass(OnTheGpu))
    with FastParallelEnvironment([functools.partial(NestedAlfEnv, end=0)] * 2) as envs:
        time_step = envs.reset()
        assert all(type(leaf) is OnTheGpu for leaf in alf.nest.flatten(time_step))
        on_cpu = time_step.cpu()
        assert all(type(leaf) is torch.Tensor for leaf in alf.nest.flatten(on_cpu))
        assert torch.equal(on_cpu.reward, time_step.reward.as_subclass(torch.Tensor))
        action = alf.nest.map_structure(lambda leaf: leaf.as_subclass(OnTheGpu), time_step.prev_action)
        assert envs.step(action).cpu().step_type.tolist() == [1, 1]
