"""Time steps of the ALF face equal, bit for bit, those of envs that the test steps one after another."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import alf
import numpy as np
import pytest
import torch
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
from pool_envs import Gate

from remuda.alf import FastParallelEnvironment, ParallelAlfEnvironment

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def compare(ours: Any, reference: Any) -> None:
    """Steps `ours` and `reference` with the same actions, compares all time steps, and closes `ours`."""
    with ours:
        random = np.random.default_rng(5)
        got, expected = ours.reset(), reference.reset()
        assert_same_time_step(got, expected, "reset")
        for i in range(60):
            actions = random_actions(ours.action_spec(), ours.batch_size, random)
            got, expected = ours.step(actions), reference.step(actions)
            assert_same_time_step(got, expected, f"step {i}")
            assert ours.current_time_step() is got
            if i % 20 == 19:
                assert_same_time_step(ours.reset(), reference.reset(), f"reset after step {i}")


WAYS: list[tuple[Any, dict[str, Any]]] = [
    *((FastParallelEnvironment, {"num_workers": number}) for number in (None, 1, 2)),
    (FastParallelEnvironment, {"max_concurrency": 1}),
    *((FastParallelEnvironment, {"num_workers": 1, "backend": backend}) for backend in ("thread", "serial")),
    (FastParallelEnvironment, {"num_workers": 1, "start_method": "forkserver"}),
    *((ParallelAlfEnvironment, {"blocking": blocking}) for blocking in (False, True)),
]


@each(kind__options=WAYS, make=[NestedAlfEnv, functools.partial(CountingAlfEnv, length=7)])
def test_time_steps_are_the_same_in_every_way_of_stepping(make: Any, kind: Any, options: dict[str, Any]) -> None:
    resets_ahead = "max_concurrency" not in options and not options.get("blocking")
    compare(kind([make] * 3, **options), OneAfterAnother([make] * 3, resets_ahead=resets_ahead))


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


@each(batch_size=[1, 3], num_workers=[None, 1])
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


def test_the_reset_begins_as_soon_as_an_episode_ends(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with FastParallelEnvironment(hooked(2, length=1, autoreset=lambda _: gate.wait())) as envs:
        envs.reset()
        assert envs.step(torch.tensor([1, 1])).is_last().all()
        gate.let_pass()  # the reset has begun although no step was requested
        assert envs.step(torch.tensor([1, 1])).observation[:, 1].tolist() == [2, 2]


# -- memory ----------------------------------------------------------------------------------------------


def test_held_time_steps_are_never_overwritten_and_released_ones_are_reused() -> None:
    with FastParallelEnvironment(counting(2), num_workers=1, frames=2) as envs:
        kept = [envs.reset(), *(envs.step(torch.tensor([i, i])) for i in range(3))]
        row = envs.step(torch.tensor([4, 4])).observation[1]
        places = {envs.step(torch.tensor([500, 500])).observation.data_ptr() for _ in range(20)}
        assert len(places) == 2  # of the latest time step, which the env holds, and of the one before
        assert [step.observation[0, 3].item() for step in kept] == [-1, 0, 1, 2]
        assert row.tolist() == [1, 1, 4, 4]
        kept[0].observation[:] = 77  # it is yours
        kept[0].env_id[:] = 77
        time_step = envs.step(torch.tensor([1, 2]))
        assert (time_step.observation[:, 3].tolist(), time_step.env_id.tolist()) == ([1, 2], [0, 1])
    assert kept[0].observation.unique().tolist() == [77]


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
