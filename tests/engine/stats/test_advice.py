"""A running pool logs advice on its number of workers once per process, and only if its own measurements support the
advice.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_stats import US, each, snapshot
from pool_envs import begun, counting

from remuda._engine.stats.verdict import advice, workers_verdict
from remuda.stats import PoolStats


def crowd(waited: float = 1400, own: float = 95, workers: int = 64) -> PoolStats:
    """Returns statistics of 64 CartPoles on two cores. `waited` and `own` are microseconds per batch."""
    return snapshot(steps=[each(23 * US)] * 64, workers=workers, waited=waited * US, own=own * US)


def games(workers: int = 1, own: float = 95) -> PoolStats:
    """Returns statistics of 8 games that each wait for a simulator."""
    return snapshot(steps=[each(5000 * US)] * 8, workers=workers, cpu=0.01, waited=40_000 * US / workers, own=own * US)


@pytest.mark.parametrize(
    ("seen", "best"),
    [
        (crowd(), 2),
        (crowd(own=1595), None),  # the policy takes as long as the envs
        (crowd(waited=300, own=1195), None),  # the pool waits for too little of the time
        (crowd(workers=2), None),  # the pool has too few workers to save much
        (games(), 8),
        (games(own=960_000), None),
        (
            snapshot(steps=[each(1000 * US)] * 8, workers=8, waited=4000 * US, own=95 * US),
            None,
        ),  # all cores are busy
        (snapshot(steps=[each(4 * US)] * 4, workers=4, waited=50 * US, own=45 * US), None),
    ],
)
def test_advice_is_given_only_where_fewer_or_more_workers_are_faster(seen: PoolStats, best: int | None) -> None:
    text = advice(seen)
    assert (text is None) == (best is None)
    if text is not None:
        assert f"num_workers={best} should be faster" in text


def test_advice_names_remuda_and_the_measurements() -> None:
    assert advice(crowd()) == (
        "remuda: worker count: of 1.5 ms a batch, your program waits 1.4 ms for 64 envs in 64 workers on 2 "
        "cores, a step of which takes 23 us of CPU and 0 us of waiting; num_workers=2 should be faster. "
        "(num_workers='auto' measures and chooses; log_advice=False keeps this quiet, "
        "and pool.stats() has the details.)"
    )


def test_advice_counts_vector_envs() -> None:
    """Each of the four vector envs steps two envs at once."""
    vectors = snapshot(
        steps=[each(10_000 * US)] * 8, workers=1, waited=40_400 * US, own=95 * US, cores=4, vector_size=2
    )
    text = advice(vectors)
    assert text is not None
    assert "for 4 vector envs in 1 worker on 4 cores" in text


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5), st.floats(0.01, 1), st.integers(1, 64), st.data())
def test_no_advice_if_the_program_waits_less_than_half_of_the_time(
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
        (suggested,) = re.findall(r"num_workers=(\d+) should", text)
        assert int(suggested) != seen.setup.num_workers
        assert 1 <= int(suggested) <= num_envs


def test_steps_before_the_first_snapshot_do_not_count() -> None:
    slow = snapshot(steps=[each(5000 * US)] * 8, workers=1, cpu=0.01, waited=40_000 * US)
    assert advice(slow - slow) is None  # without a step there is no measurement


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
