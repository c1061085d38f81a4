"""Failures of several envs and workers are raised together, and do not keep a dropped pool alive."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
from accidents import kill_myself, raise_value_error
from failing import MODES, failure, fault_in, faults_of
from pairs import each
from pool_envs import begun, hooked
from programs import kill

from remuda import EnvError, FaultPolicy, Pool, WorkerDiedError


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


def _death_in_a_call(pool: Pool) -> None:
    pool.call("poke")


def _death_while_idle(pool: Pool) -> None:
    kill(pool, 1)
    pool.call("poke")


def _exception(pool: Pool) -> None:
    raise fault_in(pool.step([1, 1]), 1).error


@each(fault=[_death_in_a_call, _death_while_idle, _exception], mode=MODES)
def test_an_error_whose_fault_the_pool_keeps_does_not_keep_the_pool(fault: Any, mode: Any) -> None:
    def raise_and_drop() -> weakref.ref[Pool]:
        faults = FaultPolicy("restart", backoff=0)
        pool = begun(hooked(2, step=raise_value_error, call=kill_myself), faults=faults, autoreset=mode)
        with suppress(WorkerDiedError, EnvError):
            try:
                fault(pool)
            except BaseException as error:
                kept.append(error)  # its traceback has this frame, and so the pool
                raise
        kept.append(kept)
        return weakref.ref(pool)

    kept: list[Any] = []
    gone = raise_and_drop()
    assert len(kept) == 2
    del kept
    while gone() is not None:  # the supervisor may be handling an event
        gc.collect()
