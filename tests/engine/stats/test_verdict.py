"""Verdicts on a pool: the name of each cause, its figures, and the advice that a running pool logs.

Most are on made-up statistics, since some causes depend on cores. A pool logs advice once per process, and only if its
own measurements support the advice.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import leave, raise_value_error, wait_for_ever
from made_up_stats import BATCHES, US, each, snapshot
from pool_envs import HookedEnv, begun, counting
from replays import at_step

from remuda import FaultPolicy, Pool
from remuda._engine.stats.verdict import advice
from remuda.stats import Durations, PoolStats, Verdict

MS = 1e-3

CARTPOLES = [each(6 * US)] * 8
GAMES = [each(5 * MS)] * 8  # each env waits for its own game
STOOD_STILL = Durations.of([1 * MS] * (BATCHES - 1) + [800 * MS])
RESETS = Durations.of([300 * MS] * (BATCHES // 100))  # each episode has a hundred steps


def seen(steps: list[Durations], workers: int, waited: float, own: float = 0.0, **options: Any) -> PoolStats:
    """Returns statistics on two cores. `waited` and `own` are microseconds per batch."""
    return snapshot(steps=steps, workers=workers, waited=waited * US, own=own * US, **options)


MORE_ENVS, SPENT = "more envs a batch (16, say)", "see what a step spends its time on"
ONE_SLOW = [each(1 * MS)] * 15 + [each(10 * MS)]
SLOWED = [each(1 * MS)] * 10 + [STOOD_STILL] * 5 + [each(10 * MS)]  # the machine stood still for a moment
REMOTE_GAMES = [each(23 * MS)] * 64
CROWD = [each(23 * US)] * 64  # CartPoles
ENV_15 = "env 15 takes 10 ms a step, the others 1 ms, and every batch of 10.1 ms waits for that; take the others'"

CASES: dict[str, tuple[PoolStats, str, str]] = {
    "a policy that takes ten times as long as the envs": (seen(CARTPOLES, 2, 50, 500), "policy", MORE_ENVS),
    "a policy that takes as long as the envs": (seen(GAMES, 8, 5000, 6000, cpu=0.02), "policy", MORE_ENVS),
    "envs that take a bit longer than the policy": (seen(GAMES, 8, 5100, 4000, cpu=0.02), "env step", "pool.split(2)"),
    "envs that keep all cores busy": (seen([each(4 * MS)] * 4, 2, 8100, 100), "env step", SPENT),
    "one slow env among sixteen": (seen(ONE_SLOW, 16, 10_100, cpu=0.02), "slow env", ENV_15),
    "one slow env that shares a worker": (seen(ONE_SLOW, 8, 11_500, 2000, cpu=0.05), "slow env", "min_envs=15"),
    "one slow env on a machine that stood still": (seen(SLOWED, 16, 10_800, cpu=0.02), "slow env", "min_envs=15"),
    "resets as long as three hundred steps": (
        seen([each(1 * MS)] * 8, 8, 24_000, resets=[RESETS] * 8, cpu=0.02),
        "slow resets",
        "spares=8",
    ),
    "sixty-four workers on two cores": (seen(CROWD, 64, 1400, 95, queued=100 * US), "worker count", "num_workers=2"),
    "one worker for eight games": (seen(GAMES, 1, 40_000, 100, cpu=0.01), "worker count", "num_workers=8"),
    "a serial pool with a policy as slow as the envs": (
        seen(CARTPOLES, 1, 60, 50, backend="serial"),
        "env step",
        SPENT,
    ),
    "resets, restarts and as many workers as envs on other machines": (
        seen(CARTPOLES, 8, 40_000, resets=[RESETS] * len(CARTPOLES), is_remote=True),
        "transport",
        "pool.rollouts(policy)",
    ),
    "slow envs on other machines": (
        seen(REMOTE_GAMES, 64, 24_000, cpu=0.02, is_remote=True),
        "env step",
        "in 64 workers of other machines",
    ),
    "too little to say anything": (seen(CARTPOLES, 2, 1e6, batches=3), "unknown", ""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_names_each_cause(case: str) -> None:
    stats, cause, advice = CASES[case]
    verdict = stats.verdict
    assert verdict.cause == cause, verdict.text
    assert advice in verdict.text
    assert str(verdict) == verdict.text
    assert "\n" not in verdict.text
    assert 0 <= verdict.saves <= 1
    assert verdict.saves * stats.seconds <= max(stats.caller.waiting, stats.caller.own) * 1.001
    if cause != "unknown":
        assert verdict.text.startswith(f"{cause}: ")


@pytest.mark.parametrize("case", ["sixty-four workers on two cores", "one worker for eight games"])
@pytest.mark.parametrize("setup", [{"is_chosen": True}, {"spares": 1}])
def test_after_auto_no_other_number_of_workers_is_suggested(case: str, setup: dict[str, Any]) -> None:
    stats, _, _ = CASES[case]
    verdict = replace(stats, setup=replace(stats.setup, **setup)).verdict
    assert verdict.cause != "worker count"
    assert "num_workers=" not in verdict.text


@pytest.mark.parametrize("setup", [{"autoreset": "background"}, {"spares": 2}])
def test_resets_without_waiting_are_not_the_cause(setup: dict[str, Any]) -> None:
    stats = seen([each(1 * MS)] * 8, 8, 1100, resets=[RESETS] * 8, cpu=0.02, **setup)
    assert stats.verdict.cause in {"env step", "unknown"}


@pytest.mark.parametrize("options", [{"faults": "restart"}, {"max_worker_memory": "1GiB"}])
def test_pools_that_keep_envs_apart_get_no_advice_to_share_workers(options: Any) -> None:
    with Pool(counting(2), **options) as pool:
        setup = pool.stats().setup
    assert setup.keeps_apart
    crowd, _, _ = CASES["sixty-four workers on two cores"]
    apart = replace(crowd, setup=replace(setup, envs_of_worker=crowd.setup.envs_of_worker))
    assert "num_workers" not in apart.verdict.text
    assert advice(apart) is None


# -- advice ----------------------------------------------------------------------------------------------


FASTER = "num_workers={} should be faster"
TEXT = "remuda: worker count: of 1.5 ms a batch, your program waits 1.4 ms for 64 envs in 64 workers on 2 cores, a step"
VECTORS = {"cores": 4, "vector_size": 2}  # four vector envs of two envs each


@pytest.mark.parametrize(
    ("stats", "text"),
    [
        (seen(CROWD, 64, 1400, 95), TEXT),
        (seen(CROWD, 64, 1400, 1595), None),  # the policy takes as long as the envs
        (seen(CROWD, 64, 300, 1195), None),  # the pool waits for too little of the time
        (seen(CROWD, 2, 1400, 95), None),  # the pool has too few workers to save much
        (seen(GAMES, 1, 40_000, 95, cpu=0.01), FASTER.format(8)),
        (seen([each(1 * MS)] * 8, 8, 4000, 95), None),  # all cores are busy
        (seen([each(4 * US)] * 4, 4, 50, 45), None),
        (seen([each(10 * MS)] * 8, 1, 40_400, 95, **VECTORS), "for 4 vector envs in 1 worker on 4 cores"),
        (seen(GAMES, 1, 40_000, cpu=0.01) - seen(GAMES, 1, 40_000, cpu=0.01), None),  # there is no measurement
    ],
)
def test_advice_is_given_only_where_fewer_or_more_workers_are_faster(stats: PoolStats, text: str | None) -> None:
    given = advice(stats)
    assert (given is None) == (text is None)
    assert text is None or text in str(given)


# -- when ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({}, ["do something else"]),
        ({"log_advice": False}, []),
        ({"num_workers": "auto"}, []),
        ({"backend": "serial"}, []),
    ],
)
def test_a_process_logs_advice_once_and_never_where_it_is_turned_off_or_of_no_use(
    options: Any, texts: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda._engine.pool.pool.advice", lambda *_: "do something else")
    monkeypatch.setattr("remuda._engine.stats.verdict._said", [])
    caplog.set_level(logging.WARNING, "remuda")
    for _ in range(2):
        with begun(counting(1), **{"backend": "thread", **options}) as pool:
            for _ in range(600):
                pool.step([0])
    assert [record.getMessage() for record in caplog.records] == texts


# -- causes that are planted in real pools, large enough to dominate all others --------------------------


def verdict_of(env_fns: Sequence[Callable[[], Any]], **options: Any) -> Verdict:
    with begun(env_fns, log_advice=False, **options) as pool:
        pool.step([0] * pool.num_envs)
        before = pool.stats()
        for _ in range(32):
            pool.step([0] * pool.num_envs)
        return (pool.stats() - before).verdict


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


@pytest.mark.parametrize(
    ("how", "backend"),
    [(wait_for_ever, "process"), (leave, "process"), (raise_value_error, "thread")],
)
def test_the_verdict_names_faults(how: Any, backend: Any) -> None:
    deadline = {"step_timeout": 0.5} if how is wait_for_ever else {}
    policy = FaultPolicy("restart", max_restarts=100, **deadline)
    slow_to_build = partial(HookedEnv, step=at_step(4, how), build=lambda _: time.sleep(0.04))
    verdict = verdict_of([slow_to_build] * 2, backend=backend, faults=policy)
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
    with Pool(counting(1), backend="serial") as pool:
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 5))
        assert pool.stats().caller.torch_threads == 5
        monkeypatch.delitem(sys.modules, "torch")
        assert pool.stats().caller.torch_threads is None
        assert "torch" not in sys.modules  # `stats()` does not import PyTorch
