"""remuda.collect: a policy fills rollouts in the fastest of several ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pairs import each
from pool_envs import begun, counting
from rollout_envs import ending

import remuda
from remuda import Pool, Rollout
from remuda._training import collect as collecting
from remuda._training.collect import PLAIN, Collector, SteppingMode


def policy(obs: Any) -> tuple[Any, dict[str, Any]]:
    """Derives the actions from each env's observations, so that mixed-up rows would change them."""
    actions = (obs[:, 0] * 3 + obs[:, 2]) % 7
    return actions, {"value": actions / 2, "pair": np.stack([obs[:, 0], obs[:, 2]], 1)}


def by_env(rollout: Rollout) -> dict[int, Any]:
    names = ("obs", "actions", "rewards", "terminations", "truncations", "valid", "episode_starts")
    arrays = [getattr(rollout, name) for name in names] + list(rollout.columns.values())
    return {env_id: [array[:, i] for array in arrays] for i, env_id in enumerate(rollout.env_ids.tolist())}


WAYS: list[dict[str, Any]] = [{}, {"parts": 1}, {"parts": 2}, {"parts": 3}, {"min_envs": 1}, {"min_envs": 4}]


class Counting:
    """A policy that keeps the number of steps in the episode of each env as its state."""

    def initial_state(self, k: int) -> Any:
        return np.zeros(k, np.int64), {"again": np.zeros((k, 2), np.int64)}

    def act(self, obs: Any, context: remuda.PolicyContext) -> Any:
        steps, others = context.state
        assert (others["again"] == steps[:, None]).all()
        context.state = steps + 1, {"again": others["again"] + 1}
        actions, columns = policy(obs)
        return actions, columns | {"env": context.env_ids, "steps": steps, "begins": context.episode_starts}


@each(way=WAYS, autoreset=["next_step", "same_step"])
def test_each_env_does_the_same_with_a_state_of_its_own_in_every_way_of_stepping(
    way: dict[str, Any], autoreset: Any
) -> None:
    lengths = [2, 3, 5, 7, 11, 50]
    with (
        begun(ending(lengths), num_workers=2, autoreset=autoreset, seed=1) as pool,
        begun(ending(lengths), backend="serial", autoreset=autoreset, seed=1) as serial,
    ):
        ours = remuda.collect(pool, Counting(), steps=9, **way)
        plain = remuda.collect(serial, Counting(), steps=9, parts=1)
        for _ in range(5):
            rollout, twin = next(ours), by_env(next(plain))
            columns = rollout.columns
            np.testing.assert_array_equal(columns["value"], rollout.actions / 2)
            np.testing.assert_array_equal(columns["pair"], rollout.obs[:-1][..., [0, 2]])
            np.testing.assert_array_equal(columns["begins"], rollout.episode_starts[:-1])
            np.testing.assert_array_equal(columns["steps"], rollout.obs[:-1, :, 2])
            assert (columns["env"] == rollout.env_ids).all()
            assert not rollout.is_open
            assert by_env(rollout).keys() == twin.keys()
            for env_id, arrays in by_env(rollout).items():
                for array, expected in zip(arrays, twin[env_id], strict=True):
                    np.testing.assert_array_equal(array, expected)
        assert ours.filled == 5


def test_the_random_numbers_of_a_policy_follow_from_the_seed() -> None:
    def drawing(obs: Any, context: remuda.PolicyContext) -> Any:
        return np.zeros(len(obs), np.int64), {"draw": context.rng.random(len(obs))}

    draws = []
    for seed in (3, 3, 4):
        with begun(counting(4), backend="serial") as pool:
            rollouts = remuda.collect(pool, drawing, steps=3, seed=seed)
            draws.append([next(rollouts).columns["draw"].tolist() for _ in range(2)])
    assert draws[0] == draws[1] != draws[2]


def test_a_torch_module_receives_tensors_and_keeps_a_tensor_state() -> None:
    torch = pytest.importorskip("torch")

    class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Parameter(torch.ones(1))

        def initial_state(self, k: int) -> Any:
            return torch.zeros(k)

        def forward(self, obs: Any, context: remuda.PolicyContext) -> Any:
            assert isinstance(obs, torch.Tensor) and not torch.is_grad_enabled()
            steps = context.state
            context.state = steps + self.one
            return torch.zeros(len(obs), dtype=torch.long), {"steps": steps, "half": steps.bfloat16()}

    with begun(ending([2, 3, 5, 50]), num_workers=2) as pool:
        rollout = next(remuda.collect(pool, Recurrent(), steps=8, parts=2))
    assert rollout.columns["half"].dtype == np.float32
    np.testing.assert_array_equal(rollout.columns["steps"], rollout.obs[:-1, :, 2])


def test_collect_works_with_vector_envs_of_the_faces() -> None:
    envs: Any = remuda.gymnasium.AsyncVectorEnv(counting(4), num_workers=2)
    envs.reset()
    collector = remuda.collect(envs, policy, steps=5)
    assert [next(collector).valid.all() for _ in range(5)] == [True] * 5
    obs, *_ = envs.step(np.zeros(4, int))
    assert obs[:, 2].tolist() == [26] * 4
    envs.close()


class Stopwatch(Collector):
    """A collector that fills nothing. Each way takes a given time of the clock that replaces the module `time`."""

    def __init__(self, seconds: dict[SteppingMode, float], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(None, policy, 8, list(seconds))  # type: ignore[arg-type]
        self.now, self.takes, self.went = 0.0, seconds, list[SteppingMode]()
        monkeypatch.setattr(collecting, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def _fill(self, way: SteppingMode) -> Any:
        self.went.append(way)
        self.now += self.takes[way] + (100.0 if self.filled == 0 else 0.0)


HALVES, READY = SteppingMode(parts=2), SteppingMode(min_envs=4)


@pytest.mark.parametrize(
    ("plain", "halves", "ready", "best"),
    [
        (1.0, 2.0, 2.0, PLAIN),
        (2.0, 1.0, 2.0, HALVES),
        (2.0, 2.0, 1.0, READY),
        (1.0, 0.95, 0.99, PLAIN),  # the others are not clearly faster
    ],
)
def test_after_trying_each_the_fastest_way_is_used(
    plain: float, halves: float, ready: float, best: SteppingMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Stopwatch({PLAIN: plain, HALVES: halves, READY: ready}, monkeypatch)
    for _ in range(50):
        next(watch)
    assert watch.went[:4] == [PLAIN, PLAIN, HALVES, READY]
    assert set(watch.went[4:]) == {best}
    watch.takes = {PLAIN: 2.0, HALVES: 1.0, READY: 2.0}
    for _ in range(54):  # the fastest way has changed
        next(watch)
    assert (watch.parts, watch.min_envs) == (2, None)


def test_with_the_serial_backend_only_the_plain_way_is_used() -> None:
    with begun(counting(4), backend="serial") as pool:
        collector = remuda.collect(pool, policy, steps=2)
        for _ in range(6):
            next(collector)
            assert (collector.parts, collector.min_envs) == (1, None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policy": 3}, TypeError, "expected policy to be a function of observations"),
        ({"steps": 0}, ValueError, "expected steps to be an int from 1 up, got 0"),
        ({"steps": "2"}, TypeError, "expected steps to be an int from 1 up, got '2'"),
        ({"parts": 5}, ValueError, "expected parts to be an int from 1 to 4, got 5"),
        ({"parts": True}, ValueError, "expected parts to be an int from 1 to 4, got True"),
        ({"min_envs": 5}, ValueError, "expected min_envs to be an int from 1 to 4, got 5"),
        ({"min_envs": 0}, ValueError, "expected min_envs to be an int from 1 to 4, got 0"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with Pool(counting(4), num_workers=2) as pool, pytest.raises(error, match=message):
        remuda.collect(pool, **{"policy": policy, "steps": 2, **arguments})


def test_pools_without_rollouts_are_refused_at_once() -> None:
    with Pool(counting(4), num_workers=2, autoreset="disabled") as pool, pytest.raises(ValueError, match="autoreset"):
        remuda.collect(pool, policy, steps=2)
    with pytest.raises(remuda.ClosedError):
        remuda.collect(pool, policy, steps=2)
    with Pool(counting(4), num_workers=2) as pool, pytest.raises(ValueError, match="only a whole pool can be divided"):
        remuda.collect(pool.split(2)[0], policy, steps=2, parts=2)


def test_after_an_error_the_pool_can_collect_again() -> None:
    with Pool(counting(4), num_workers=2) as pool:
        with pytest.raises(ValueError, match="expected parts or min_envs, got both"):
            remuda.collect(pool, policy, steps=2, parts=2, min_envs=3)
        with pytest.raises(remuda.StateError, match="reset"):
            next(remuda.collect(pool, policy, steps=2))
        pool.reset()
        for way in WAYS:

            def failing(obs: Any, calls: Iterator[int] = itertools.count()) -> Any:  # noqa: B008 - one for each way
                if next(calls) == 2:
                    raise ZeroDivisionError
                return np.zeros(len(obs), int)

            with pytest.raises(ZeroDivisionError):
                next(remuda.collect(pool, failing, steps=4, **way))
            assert next(remuda.collect(pool, policy, steps=2)).valid.all()
