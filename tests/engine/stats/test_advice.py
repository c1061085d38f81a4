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
from remuda.stats import Durations, PoolStats

CROWD = [each(23 * US)] * 64  # CartPoles
GAMES = [each(5000 * US)] * 8  # each waits for a simulator
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
