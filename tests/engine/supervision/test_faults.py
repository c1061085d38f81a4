"""Failures of several envs and workers are raised together."""

from __future__ import annotations

import pytest
from failing import failure, faults_of

from remuda import EnvError, WorkerDiedError


def test_failures_are_raised_together_in_order() -> None:
    faults = faults_of(3)
    faults.add_failures([failure(2)], [2])
    faults.add_failure(failure(None))
    faults.add_failures([failure(0)], [0])
    with pytest.raises(EnvError) as raised:
        faults.raise_any()
    assert [f.env_id for f in raised.value.failures] == [None, 0, 2]
    assert raised.value.env_ids == (0, 2)
    assert str(raised.value) == (
        "all envs (worker 0) raised ValueError in step: wrong; envs 0, 2 (worker 0) raised ValueError in step: wrong"
    )
    faults.raise_any()


def test_faults_are_raised_together_deaths_first() -> None:
    faults = faults_of(4)
    deaths = [
        WorkerDiedError(worker=w, pid=9, exitcode=-9, env_ids=(2 * w, 2 * w + 1), operation="step") for w in range(2)
    ]
    faults.add_failure(failure())
    for death in deaths:
        faults.add_death(death.env_ids, death, awaited=True)
    with pytest.raises(WorkerDiedError) as raised:
        faults.raise_any()
    assert raised.value is deaths[0]
    second, raising = raised.value.others
    assert second is deaths[1]
    assert isinstance(raising, EnvError)
    assert f"; and {second}; and {raising}" in str(raised.value)
    faults.raise_any()  # all faults have been raised
