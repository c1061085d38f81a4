"""Accidents that the DI-engine face handles in its own ways, in addition to those in fault_table.py."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
from crash_matrix import ROWS
from ding_face_envs import Unlucky, ours

from remuda import FaultPolicy, RemudaError

pytestmark = pytest.mark.filterwarnings("ignore")

SECONDS = 0.3  # the deadline of each step, reset and call
CELLS = {
    "step": [
        "leave",
        "raise_needs_arguments",
        "run_out_of_memory",
        "loop_for_ever",  # ended by the worker's alarm
    ],
    "background": ["kill_myself", "raise_value_error", "hold_the_gil", "loop_for_ever"],
    "call": ["loop_for_ever"],
}
BY_NAME = {row.act.__name__: row for row in ROWS}
# The errors of a step or a call. An accident in a reset always raises RuntimeError.
RAISED = {
    "raise_needs_arguments": RemudaError,
    "run_out_of_memory": MemoryError,
}
BY_KIND = {"death": EOFError, "hang": TimeoutError}


def live(manager: Any) -> None:
    manager.launch()
    _ = manager.mood
    while True:
        manager.step(dict.fromkeys(manager.ready_obs, 0))


@pytest.mark.parametrize(("phase", "accident"), [(phase, accident) for phase in CELLS for accident in CELLS[phase]])
def test_an_accident_raises_the_expected_error_and_closes_the_manager(phase: str, accident: str) -> None:
    row = BY_NAME[accident]
    cfg = {
        "step_timeout": SECONDS,
        "reset_timeout": SECONDS,
        "remuda": {"faults": FaultPolicy(call_timeout=SECONDS)},
    }
    env_fns = [partial(Unlucky, which, row.act, os.getpid()) for which in ("none", phase)]
    manager = ours.SyncSubprocessEnvManager(env_fns, cfg)
    expected = RuntimeError
    if phase in ("step", "call"):
        expected = BY_KIND.get(row.kind) or RAISED[row.act.__name__]
    with pytest.raises(expected) as caught:
        live(manager)
    causes = [caught.value]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert any(isinstance(cause, RemudaError) for cause in causes)
    assert manager.closed
    manager.close()
