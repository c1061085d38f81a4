"""What a running pool says of its number of workers: only what it has measured, and once."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_envs import counting

from remuda import Pool, PoolStats
from remuda._engine.startup import advice as advising
from remuda._engine.startup.advice import Adviser, Observed, Snapshot, advice
from remuda._engine.startup.choice import best_num_workers
from remuda._worker.measuring import StepCost

MICROSECOND = 1e-6


def observed(whole: float, waited: float, cpu: float, blocked: float = 0.0) -> Observed:
    """In microseconds."""
    return Observed(
        whole * MICROSECOND, waited * MICROSECOND, StepCost((cpu + blocked) * MICROSECOND, cpu * MICROSECOND)
    )


CROWD = observed(whole=1500, waited=1400, cpu=23)  # 64 CartPoles in 64 workers on two cores
ALONE = observed(whole=40_100, waited=40_000, cpu=50, blocked=4950)  # 8 games in one worker


@pytest.mark.parametrize(
    ("seen", "num_envs", "num_workers", "best"),
    [
        (CROWD, 64, 64, 2),
        (dataclasses.replace(CROWD, whole=3000 * MICROSECOND), 64, 64, None),  # as long again is the policy's
        (dataclasses.replace(CROWD, waited=300 * MICROSECOND), 64, 64, None),  # there is little to save
        (CROWD, 64, 2, None),  # as it should be
        (ALONE, 8, 1, 8),
        (dataclasses.replace(ALONE, whole=1.0), 8, 1, None),
        (observed(4100, 4000, cpu=1000), 8, 8, None),  # the cores are the limit
        (observed(100, 50, cpu=4), 4, 4, None),
    ],
)
def test_what_is_said(seen: Observed, num_envs: int, num_workers: int, best: int | None) -> None:
    text = advice(seen, num_envs, num_workers, 2)
    assert (text is None) == (best is None)
    if text is not None:
        assert f"num_workers={best} should be faster" in text


def test_it_names_remuda_and_what_was_measured() -> None:
    assert advice(CROWD, 64, 64, 2) == (
        "remuda: of 1500 us a batch, your program waits 1400 us for 64 envs in 64 workers on 2 cores, a step of which "
        "takes 23 us of CPU and 0.0 us of waiting. num_workers=2 should be faster. (num_workers='auto' measures and "
        "chooses; advise=False keeps this quiet.)"
    )


def test_it_speaks_of_vector_envs() -> None:
    seen = observed(whole=40_500, waited=40_400, cpu=10_000)
    text = advice(seen, 4, 1, 4, "vector envs")
    assert text is not None
    assert "for 4 vector envs in 1 worker on 4 cores" in text


observations = st.builds(observed, st.just(0.0), st.floats(0, 1e6), st.floats(0.1, 1e5), st.floats(0, 1e5))


@given(observations, st.floats(0, 1e6), st.integers(1, 200), st.integers(1, 64), st.data())
def test_nobody_is_advised_who_waits_for_less_than_half_of_the_time(
    seen: Observed, rest: float, num_envs: int, cores: int, data: st.DataObject
) -> None:
    num_workers = data.draw(st.integers(1, num_envs))
    seen = dataclasses.replace(seen, whole=seen.waited + rest * MICROSECOND)
    text = advice(seen, num_envs, num_workers, cores)
    if seen.waited < seen.whole / 2:
        assert text is None
    if text is not None:
        (told,) = re.findall(r"num_workers=(\d+) should", text)
        assert int(told) != num_workers
        assert 1 <= int(told) <= num_envs
        assert "times" not in text
    if num_workers <= cores and num_workers == best_num_workers(seen.cost, num_envs, cores):
        assert text is None


# -- what is observed --------------------------------------------------------------------------------------


def snapshot(steps: int, batches: int, env: float, cpu: float, waited: float, queued: float, when: float) -> Snapshot:
    return Snapshot(PoolStats(steps, batches, env, cpu, waited, (steps,)), queued, when)


FIRST = snapshot(steps=100, batches=10, env=5.0, cpu=3.0, waited=7.0, queued=1.0, when=50.0)


def test_what_was_before_the_first_look_does_not_count() -> None:
    second = snapshot(steps=300, batches=30, env=6.0, cpu=3.2, waited=8.0, queued=1.3, when=54.0)
    seen = Observed.between(FIRST, second)
    assert seen is not None
    assert (seen.whole, seen.waited) == pytest.approx((0.2, 0.05))
    # Of 5 ms in a step 1 is CPU and 1.5 queueing for a core; the rest is waiting.
    assert (seen.cost.cpu, seen.cost.wall) == pytest.approx((1e-3, 3.5e-3))


def test_one_call_steps_a_whole_vector_env() -> None:
    second = snapshot(steps=300, batches=30, env=6.0, cpu=4.0, waited=8.0, queued=1.0, when=54.0)
    seen = Observed.between(FIRST, second, width=2)
    assert seen is not None
    assert seen.cost.cpu == pytest.approx(1e-2)


def test_where_no_step_was_taken_nothing_is_known() -> None:
    assert Observed.between(FIRST, FIRST) is None


# -- when ----------------------------------------------------------------------------------------------------


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is logged by pools that would always have something to say, in a process that was not advised before."""
    monkeypatch.setattr("remuda._engine.pool.pool.advice", lambda *_: "do something else")
    monkeypatch.setattr("remuda._engine.pool.pool.ADVISER", Adviser())
    caplog.set_level(logging.WARNING, "remuda")
    return caplog


def run(**options: Any) -> None:
    with Pool(counting(1), **{"backend": "thread", **options}) as pool:
        pool.reset()
        for _ in range(600):
            pool.step([0])


def test_one_line_a_process(said: pytest.LogCaptureFixture) -> None:
    run()
    run()
    assert [record.getMessage() for record in said.records] == ["do something else"]


@pytest.mark.parametrize("options", [{"advise": False}, {"num_workers": "auto"}, {"backend": "serial"}])
def test_nothing_is_said_to_whom_it_is_of_no_use(options: Any, said: pytest.LogCaptureFixture) -> None:
    run(**options)
    assert said.records == []


def test_the_process_has_one_adviser() -> None:
    assert isinstance(advising.ADVISER, Adviser)
