"""Every accident in every phase, through DI-engine's face: its errors, and nothing left behind."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from crash_matrix import ROWS, Row
from ding_face_envs import DriftEnv, ours

from remuda import FaultPolicy, RemudaError

pytestmark = pytest.mark.filterwarnings("ignore")

SECONDS = 0.3  # for whatever has a deadline
PHASES = ["build", "reset", "step", "background", "call"]
# An accident with simulators needs a file to tell their pids; what becomes of them is the pool's affair.
ACCIDENTS = [row for row in ROWS if row.act.__name__ != "orphan_simulators"]
# Of what is raised in a step or a call. In a reset or a build it is a RuntimeError, whatever happened.
RAISED = {
    "raise_value_error": ValueError,
    "raise_unpicklable": RemudaError,
    "raise_what_needs_arguments": RemudaError,
    "exit_python": RemudaError,
    "run_out_of_memory": MemoryError,
}
BY_KIND = {"death": EOFError, "hang": TimeoutError}


class Unlucky(DriftEnv):
    """Has its accident in one phase, unless it is the one that the manager builds in its own process."""

    def __init__(self, phase: str, accident: Callable[[], Any], parent: int) -> None:
        super().__init__()
        self._phase, self._accident, self._parent, self._resets = phase, accident, parent, 0
        self._pass("build")

    def _pass(self, phase: str) -> None:
        if phase == self._phase and os.getpid() != self._parent:
            faulthandler.disable()  # forked from a test, it would tell of every death
            self._accident()

    def reset(self, **param: Any) -> Any:
        self._resets += 1
        self._pass("reset" if self._resets == 1 else "background")
        return super().reset(**param)

    def step(self, action: Any) -> Any:
        self._pass("step")
        return super().step(action)

    @property
    def mood(self) -> str:
        self._pass("call")
        return "good"


def live(manager: Any) -> None:
    manager.launch()
    _ = manager.mood
    while True:
        manager.step(dict.fromkeys(manager.ready_obs, 0))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("row", ACCIDENTS, ids=lambda row: row.act.__name__)
def test_what_comes_of_it(row: Row, phase: str) -> None:
    cfg = {
        "step_timeout": SECONDS,
        "reset_timeout": SECONDS,
        "remuda": {"start_timeout": 1.0 if phase == "build" else 60.0, "faults": FaultPolicy(call_timeout=1.0)},
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
