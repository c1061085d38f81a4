"""A call of envs: it is done when all have answered, and fails with all their failures."""

from __future__ import annotations

import pickle

import pytest
from failing import failure

from remuda import EnvError
from remuda._engine.pool.calls import Call
from remuda._engine.supervision.changes import Changes
from remuda._engine.supervision.faults import Faults


def _no_wait(call: Call, timeout: float | None) -> None:
    pass


def test_a_call_counts_its_answers() -> None:
    call = Call(_no_wait, Faults(2, in_callers_thread=False))
    for sequence in (5, 3):
        call.expect(sequence, 0, 0)
    with pytest.raises(TimeoutError, match="2 of 2 envs have not answered within 1 s"):
        call.result(timeout=1)
    call.answer(3, [pickle.dumps("three")])
    assert not call.done
    call.answer(5, [pickle.dumps("five")])
    assert call.done
    assert call.result() == ["five", "three"]


def test_a_call_fails_with_all_its_failures() -> None:
    call = Call(_no_wait, Faults(2, in_callers_thread=False))
    for sequence in (1, 2):
        call.expect(sequence, 0, 0)
        call.fail(sequence, failure(sequence), Changes())
    for _ in range(2):
        with pytest.raises(EnvError) as raised:
            call.result()
        assert raised.value.env_ids == (1, 2)
