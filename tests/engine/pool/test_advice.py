"""What a running pool says of its number of workers: only what it has measured, and once."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_stats import US, each, snapshot
from pool_envs import counting

from remuda import Pool, PoolStats
from remuda._engine.pool import advice as advising
from remuda._engine.pool.advice import Adviser, advice
from remuda._engine.stats.verdict import workers_verdict


def crowd(waited: float = 1400, own: float = 95, workers: int = 64) -> PoolStats:
    """64 CartPoles, by default each with a worker of its own, on two cores. In microseconds a batch."""
    return snapshot(steps=[each(23 * US)] * 64, workers=workers, waited=waited * US, own=own * US)


def games(workers: int = 1, own: float = 95) -> PoolStats:
    """8 games, of which each waits for a simulator."""
    return snapshot(steps=[each(5000 * US)] * 8, workers=workers, cpu=0.01, waited=40_000 * US / workers, own=own * US)


@pytest.mark.parametrize(
    ("seen", "best"),
    [
        (crowd(), 1),
        (crowd(own=1595), None),  # as long again is the policy's
        (crowd(waited=300, own=1195), None),  # there is little to save
        (crowd(workers=2), None),  # there is little to save
        (games(), 8),
        (games(own=960_000), None),
        (
            snapshot(steps=[each(1000 * US)] * 8, workers=8, waited=4000 * US, own=95 * US),
            None,
        ),  # the cores are the limit
        (snapshot(steps=[each(4 * US)] * 4, workers=4, waited=50 * US, own=45 * US), None),
    ],
)
def test_what_is_said(seen: PoolStats, best: int | None) -> None:
    text = advice(seen)
    assert (text is None) == (best is None)
    if text is not None:
        assert f"num_workers={best} should be faster" in text


def test_it_names_remuda_and_what_was_measured() -> None:
    assert advice(crowd()) == (
        "remuda: too many workers: of 1.5 ms a batch, your program waits 1.4 ms for 64 envs in 64 workers on 2 "
        "cores, a step of which takes 23 us of CPU and 0 us of waiting; num_workers=1 should be faster. "
        "(num_workers='auto' measures and chooses; advise=False keeps this quiet, and pool.stats() has the details.)"
    )


def test_it_speaks_of_vector_envs() -> None:
    """Each of four vector envs steps two envs at once."""
    vectors = snapshot(
        steps=[each(10_000 * US)] * 8, workers=1, waited=40_400 * US, own=95 * US, cores=4, vector_size=2
    )
    text = advice(vectors)
    assert text is not None
    assert "for 4 vector envs in 1 worker on 4 cores" in text


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5), st.floats(0.01, 1), st.integers(1, 64), st.data())
def test_nobody_is_advised_who_waits_for_less_than_half_of_the_time(
    waited: float, own: float, step: float, cpu: float, cores: int, data: st.DataObject
) -> None:
    num_envs = data.draw(st.integers(1, 64))
    seen = snapshot(
        steps=[each(step * US, 20)] * num_envs,
        workers=data.draw(st.integers(1, num_envs)),
        waited=waited * US,
        own=own * US,
        cpu=cpu,
        cores=cores,
        batches=20,
    )
    text = advice(seen)
    if seen.caller.waiting < seen.seconds / 2:
        assert text is None
    if text is not None:
        verdict = workers_verdict(seen)
        assert verdict is not None
        assert verdict.text in text
        (told,) = re.findall(r"num_workers=(\d+) should", text)
        assert int(told) != seen.setup.num_workers
        assert 1 <= int(told) <= num_envs


def test_what_was_before_the_first_look_does_not_count() -> None:
    slow = snapshot(steps=[each(5000 * US)] * 8, workers=1, cpu=0.01, waited=40_000 * US)
    assert advice(slow - slow) is None  # where no step was taken nothing is known


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
