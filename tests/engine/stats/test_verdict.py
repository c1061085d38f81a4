"""Verdicts on made-up statistics: the name of each cause, its figures, and the advice that a running pool logs.

A pool logs advice once per process, and only if its own measurements support the advice."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_stats import BATCHES, US, each, snapshot
from pool_envs import begun, counting

from remuda import Pool
from remuda._engine.stats.choice import best_num_workers
from remuda._engine.stats.verdict import advice, workers_verdict
from remuda._worker.measuring import StepCost
from remuda.stats import Durations, PoolStats

MS = 1e-3

CARTPOLES = [each(6 * US)] * 8
GAMES = [each(5 * MS)] * 8  # each env waits for its own game
STOOD_STILL = Durations.of([1 * MS] * (BATCHES - 1) + [800 * MS])
RESETS = Durations.of([300 * MS] * (BATCHES // 100))  # each episode has a hundred steps

CASES: dict[str, tuple[PoolStats, str, str]] = {
    "a policy that takes ten times as long as the envs": (
        snapshot(steps=CARTPOLES, workers=2, waited=50 * US, own=500 * US),
        "policy",
        "more envs a batch (16, say)",
    ),
    "a policy that takes as long as the envs": (
        snapshot(steps=GAMES, workers=8, cpu=0.02, waited=5 * MS, own=6 * MS),
        "policy",
        "more envs a batch (16, say)",
    ),
    "envs that take a bit longer than the policy": (
        snapshot(steps=GAMES, workers=8, cpu=0.02, waited=5.1 * MS, own=4 * MS),
        "env step",
        "pool.split(2)",
    ),
    "envs that keep all cores busy": (
        snapshot(steps=[each(4 * MS)] * 4, workers=2, waited=8.1 * MS, own=0.1 * MS),
        "env step",
        "see what a step spends its time on",
    ),
    "one slow env among sixteen": (
        snapshot(steps=[each(1 * MS)] * 15 + [each(10 * MS)], workers=16, cpu=0.02, waited=10.1 * MS),
        "slow env",
        "slow env: env 15 takes 10 ms a step, the others 1 ms, and every batch of 10.1 ms waits for that; take "
        "the others' results without it: recv(min_envs=15)",
    ),
    "one slow env among sixteen that share workers": (
        snapshot(steps=[each(1 * MS)] * 15 + [each(10 * MS)], workers=8, cpu=0.05, waited=11.5 * MS, own=2 * MS),
        "slow env",
        "min_envs=15",
    ),
    "one slow env among sixteen, on a machine that stood still for a moment": (
        snapshot(
            steps=[each(1 * MS)] * 10 + [STOOD_STILL] * 5 + [each(10 * MS)], workers=16, cpu=0.02, waited=10.8 * MS
        ),
        "slow env",
        "min_envs=15",
    ),
    "resets as long as three hundred steps": (
        snapshot(steps=[each(1 * MS)] * 8, resets=[RESETS] * 8, workers=8, cpu=0.02, waited=24 * MS),
        "slow resets",
        "spares=8",
    ),
    "sixty-four workers on two cores": (
        snapshot(steps=[each(23 * US)] * 64, workers=64, waited=1400 * US, own=95 * US, queued=100 * US),
        "worker count",
        "num_workers=2",
    ),
    "one worker for eight games": (
        snapshot(steps=GAMES, workers=1, cpu=0.01, waited=40 * MS, own=0.1 * MS),
        "worker count",
        "num_workers=8",
    ),
    "a serial pool whose policy takes as long as the envs": (
        snapshot(steps=CARTPOLES, workers=1, waited=60 * US, own=50 * US, backend="serial"),
        "env step",
        "see what a step spends its time on",
    ),
    "resets, restarts and as many workers as envs on other machines": (
        snapshot(steps=CARTPOLES, resets=[RESETS] * len(CARTPOLES), workers=8, waited=40 * MS, is_remote=True),
        "transport",
        "pool.rollouts(policy)",
    ),
    "slow envs on other machines": (
        snapshot(steps=[each(23 * MS)] * 64, workers=64, cpu=0.02, waited=24 * MS, is_remote=True),
        "env step",
        "in 64 workers of other machines",
    ),
    "too little to say anything": (snapshot(steps=CARTPOLES, workers=2, waited=1.0, batches=3), "unknown", ""),
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


@given(st.floats(1 * US, 0.1), st.floats(0.01, 1), st.integers(1, 32), st.integers(1, 64), st.floats(1, 3), st.data())
def test_the_suggested_number_of_workers_equals_that_of_auto(
    wall: float, cpu: float, num_envs: int, cores: int, slack: float, data: st.DataObject
) -> None:
    """Tested only with at most one worker per core, where the verdict needs no estimate."""
    num_workers = data.draw(st.integers(1, min(num_envs, cores)))
    waited = slack * wall * -(-num_envs // num_workers)
    stats = snapshot(
        steps=[each(wall, 50)] * num_envs, workers=num_workers, cpu=cpu, waited=waited, batches=50, cores=cores
    )
    best = best_num_workers(StepCost(wall, wall * cpu), num_envs, cores)
    verdict = stats.verdict
    if verdict.cause == "worker count":
        assert f"num_workers={best} " in verdict.text
        assert best != num_workers


@pytest.mark.parametrize("setup", [{"autoreset": "background"}, {"spares": 2}])
def test_resets_without_waiting_are_not_the_cause(setup: dict[str, Any]) -> None:
    steps = [each(1 * MS)] * 8
    assert snapshot(steps=steps, resets=[RESETS] * 8, workers=8, cpu=0.02, waited=1.1 * MS, **setup).verdict.cause in {
        "env step",
        "unknown",
    }


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


CROWD = [each(23 * US)] * 64  # CartPoles
FASTER = "num_workers={} should be faster"
TEXT = (
    "remuda: worker count: of 1.5 ms a batch, your program waits 1.4 ms for 64 envs in 64 workers on 2 "
    "cores, a step of which takes 23 us of CPU and 0 us of waiting; num_workers=2 should be faster. "
    "(num_workers='auto' measures and chooses; log_advice=False keeps this quiet, "
    "and pool.stats() has the details.)"
)
VECTORS = {"cores": 4, "vector_size": 2}  # four vector envs of two envs each


def seen(steps: list[Durations], workers: int, waited: float, own: float = 95, **options: Any) -> PoolStats:
    """Returns statistics on two cores. `waited` and `own` are microseconds per batch."""
    return snapshot(steps=steps, workers=workers, waited=waited * US, own=own * US, **options)


@pytest.mark.parametrize(
    ("stats", "text"),
    [
        (seen(CROWD, 64, 1400), TEXT),
        (seen(CROWD, 64, 1400, own=1595), None),  # the policy takes as long as the envs
        (seen(CROWD, 64, 300, own=1195), None),  # the pool waits for too little of the time
        (seen(CROWD, 2, 1400), None),  # the pool has too few workers to save much
        (seen(GAMES, 1, 40_000, cpu=0.01), FASTER.format(8)),
        (seen(GAMES, 1, 40_000, own=960_000, cpu=0.01), None),
        (seen([each(1000 * US)] * 8, 8, 4000), None),  # all cores are busy
        (seen([each(4 * US)] * 4, 4, 50, own=45), None),
        (seen([each(10_000 * US)] * 8, 1, 40_400, **VECTORS), "for 4 vector envs in 1 worker on 4 cores"),
        (seen(GAMES, 1, 40_000, cpu=0.01) - seen(GAMES, 1, 40_000, cpu=0.01), None),  # there is no measurement
    ],
)
def test_advice_is_given_only_where_fewer_or_more_workers_are_faster(stats: PoolStats, text: str | None) -> None:
    given = advice(stats)
    assert (given is None) == (text is None)
    assert text is None or text in str(given)


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5), st.floats(0.01, 1), st.integers(1, 64), st.data())
def test_no_advice_if_the_program_waits_less_than_half_of_the_time(
    waited: float, own: float, step: float, cpu: float, cores: int, data: st.DataObject
) -> None:
    num_envs = data.draw(st.integers(1, 64))
    workers = data.draw(st.integers(1, num_envs))
    stats = seen([each(step * US, 20)] * num_envs, workers, waited, own, cpu=cpu, cores=cores, batches=20)
    text = advice(stats)
    if stats.caller.waiting < stats.seconds / 2:
        assert text is None
    if text is not None:
        verdict = workers_verdict(stats)
        assert verdict is not None
        assert verdict.text in text
        (suggested,) = re.findall(r"num_workers=(\d+) should", text)
        assert int(suggested) != stats.setup.num_workers
        assert 1 <= int(suggested) <= num_envs


# -- when ----------------------------------------------------------------------------------------------------


@pytest.fixture
def advice_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log of a process without earlier advice, in which every pool has advice to give."""
    monkeypatch.setattr("remuda._engine.pool.pool.advice", lambda *_: "do something else")
    monkeypatch.setattr("remuda._engine.stats.verdict._said", [])
    caplog.set_level(logging.WARNING, "remuda")
    return caplog


def run(**options: Any) -> None:
    with begun(counting(1), **{"backend": "thread", **options}) as pool:
        for _ in range(600):
            pool.step([0])


def test_a_process_logs_advice_once(advice_log: pytest.LogCaptureFixture) -> None:
    run()
    run()
    assert [record.getMessage() for record in advice_log.records] == ["do something else"]


@pytest.mark.parametrize("options", [{"log_advice": False}, {"num_workers": "auto"}, {"backend": "serial"}])
def test_no_advice_where_it_is_turned_off_or_of_no_use(options: Any, advice_log: pytest.LogCaptureFixture) -> None:
    run(**options)
    assert advice_log.records == []
