"""Real pools with one planted cause of slowness, large enough to dominate all others: the verdict names it.

Causes that depend on cores are tested in `test_verdict` with made-up figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import leave, raise_value_error, wait_for_ever
from made_up_stats import each, snapshot
from pool_envs import HookedEnv, begun
from replays import at_step

from remuda import FaultPolicy, Pool
from remuda.stats import Verdict

SHORT, LONG = 0.001, 0.04


def sleeper(step: float, reset: float = 0.0, length: int = 1_000_000) -> Callable[[], Any]:
    """Returns a factory of envs that sleep in each step and autoreset for these seconds."""
    return lambda: HookedEnv(0, length, step=lambda *_: time.sleep(step), autoreset=lambda *_: time.sleep(reset))


def verdict_of(env_fns: Sequence[Callable[[], Any]], policy: float = 0.0, **options: Any) -> Verdict:
    with begun(env_fns, log_advice=False, **options) as pool:
        pool.step([0] * pool.num_envs)
        before = pool.stats()
        for _ in range(32):
            time.sleep(policy)
            pool.step([0] * pool.num_envs)
        return (pool.stats() - before).verdict


SLOW_ENV = [sleeper(LONG if env == 5 else SHORT) for env in range(8)]
SLOW_RESETS = [sleeper(SHORT, reset=LONG, length=4 + env) for env in range(4)]


@pytest.mark.parametrize(
    ("env_fns", "options", "cause", "texts"),
    [
        (SLOW_ENV, {"num_workers": 8}, "slow env", ("env 5 takes", "min_envs=7")),
        (SLOW_ENV, {"num_workers": 8, "backend": "thread"}, "slow env", ("env 5 takes", "min_envs=7")),
        (SLOW_RESETS, {"num_workers": 4}, "slow resets", ("spares=",)),
        ([sleeper(0.0)] * 2, {"policy": LONG, "num_workers": 2}, "policy", ()),
        ([sleeper(0.0)] * 2, {"policy": LONG, "backend": "serial"}, "policy", ()),
        ([sleeper(LONG / 4)] * 8, {"num_workers": 1}, "worker count", ("num_workers=8",)),
        ([sleeper(LONG)] * 4, {"num_workers": 4}, "env step", ()),  # all envs wait at the same time
    ],
)
def test_the_verdict_names_the_cause(env_fns: Any, options: Any, cause: str, texts: tuple[str, ...]) -> None:
    verdict = verdict_of(env_fns, **options)
    assert verdict.cause == cause, verdict
    assert all(text in verdict.text for text in texts)


def test_with_spares_slow_resets_are_not_the_cause() -> None:
    verdict = verdict_of([sleeper(SHORT, reset=LONG, length=4)] * 6, spares=2)
    assert verdict.cause != "slow resets", verdict


def returning_infos(info: Callable[[], dict[str, Any]], length: int = 1_000_000) -> Callable[[], Any]:
    """Returns a factory of envs that return these infos."""
    return lambda: HookedEnv(0, length, step=lambda env, _: (env.observe(), 0.0, False, env.steps >= length, info()))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_the_verdict_names_a_pickled_info(mode: Any) -> None:
    env_fns = [returning_infos(lambda: {"x": 1.0, "map": np.zeros(1 << 19), "name": "one"}, length=4)] * 4
    # The pool times one batch in 16, and on a busy machine that batch may have lost its core.
    measured = (verdict_of(env_fns, num_workers=1, autoreset=mode) for _ in range(5))
    verdict = next((one for one in measured if one.cause == "infos"), None)
    assert verdict is not None
    assert "info['map'], 4 MiB a step" in verdict.text


@pytest.mark.parametrize(("room", "is_named"), [(1 << 16, True), (1 << 20, False)])
def test_the_verdict_names_the_room_for_infos(room: int, is_named: bool) -> None:
    stats = snapshot(steps=[each(6e-6)] * 4, workers=1, waited=500e-6, own=50e-6, object_bytes=room)
    pickling = [replace(w, pickling=0.8 * w.seconds, info_key="text", info_bytes=30_000) for w in stats.workers]
    verdict = replace(stats, workers=tuple(pickling)).verdict
    assert verdict.cause == "infos"
    assert ("object_bytes=262144 makes room" in verdict.text) == is_named, verdict


def test_unpickling_of_infos_does_not_count_as_the_policy() -> None:
    with begun([returning_infos(lambda: {"words": ["word"] * 20_000})] * 2, num_workers=2, log_advice=False) as pool:
        before = pool.stats()
        for _ in range(16):
            assert len(list(pool.step([0, 0]).infos)) == 2
        stats = pool.stats() - before
    assert stats.caller.unpickling > 0
    assert stats.workers[0].info_key == "words"
    slow = snapshot(steps=[each(6e-6)] * 8, workers=2, waited=50e-6, own=500e-6)
    read = replace(slow, caller=replace(slow.caller, unpickling=0.8 * slow.seconds))
    assert (slow.verdict.cause, read.verdict.cause) == ("policy", "infos")


def texts() -> Any:
    """Returns an env with long observations, which are pickled."""
    env = HookedEnv(step=lambda *_: ("a" * (1 << 20), 0.0, False, False, {}), reset=lambda _: ("a", {}))
    env.observation_space = gymnasium.spaces.Text(1 << 20)
    return env


@pytest.mark.parametrize("env_fn", [returning_infos(lambda: {"x": 1.0}), texts])
def test_neither_infos_with_columns_nor_observations_count_as_pickled_infos(env_fn: Any) -> None:
    with begun([env_fn] * 2, num_workers=1, log_advice=False) as pool:
        pool.step([0, 0])
        before = pool.stats()
        for _ in range(8):
            batch = pool.step([0, 0])
        stats = pool.stats() - before
    assert batch.infos[0] == {"x": 1.0} or len(batch.obs[0]) == 1 << 20
    assert [worker.pickling for worker in stats.workers] == [0.0]
    assert stats.caller.unpickling == 0.0
    assert stats.verdict.cause != "infos"


def failing(how: Callable[[], Any], every: int) -> Callable[[], Any]:
    """Returns a factory of envs that are slow to build and fail in step `every` of each episode."""

    return lambda: HookedEnv(step=at_step(every, how), build=lambda _: time.sleep(LONG))


@pytest.mark.parametrize(
    ("how", "backend"),
    [(wait_for_ever, "process"), (leave, "process"), (raise_value_error, "thread")],
)
def test_the_verdict_names_faults(how: Any, backend: Any) -> None:
    deadline = {"step_timeout": 0.5} if how is wait_for_ever else {}
    policy = FaultPolicy("restart", max_restarts=100, **deadline)
    verdict = verdict_of([failing(how, 4)] * 2, backend=backend, faults=policy)
    assert verdict.cause == "faults", verdict
    assert "min_envs=1" in verdict.text


@pytest.mark.parametrize("threads", [1, 2])
def test_the_verdict_names_pytorch_threads_that_disturb_workers(threads: int) -> None:
    """PyTorch's threads spin on the workers' cores while they wait for each other."""
    stats = snapshot(steps=[each(6e-6)] * 8, workers=2, waited=50e-6, own=500e-6)
    busy = replace(stats.caller, cpu=1.9 * stats.seconds, torch_threads=threads)
    verdict = replace(stats, caller=busy).verdict
    assert verdict.cause == "policy"
    assert ("torch.set_num_threads(1)" in verdict.text) == (threads == 2)
    idle = replace(busy, cpu=0.9 * stats.seconds)  # a program that uses one core has no spinning threads
    assert "torch" not in replace(stats, caller=idle).verdict.text


def test_the_number_of_threads_is_read_only_if_pytorch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool([sleeper(0.0)], backend="serial") as pool:
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 5))
        assert pool.stats().caller.torch_threads == 5
        monkeypatch.delitem(sys.modules, "torch")
        assert pool.stats().caller.torch_threads is None
        assert "torch" not in sys.modules  # `stats()` does not import PyTorch
