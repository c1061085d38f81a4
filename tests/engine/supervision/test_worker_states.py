"""The table of worker states: it is complete and enforced, and equals the table in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda._engine.history.worker_state import FOLLOWERS, Life, WorkerState
from remuda.errors import RemudaError

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"


def test_the_documentation_has_this_table() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*) \| (.*)\|$", ARCHITECTURE.read_text(), re.MULTILINE)
    drawn = {name: (text, set(re.findall(r"`([A-Z_]+)`", followers))) for name, text, followers in rows}
    assert drawn == {state.name: (state.value, {one.name for one in FOLLOWERS[state]}) for state in WorkerState}


def test_every_state_is_reachable_and_only_lost_is_final() -> None:
    reached = {WorkerState.RUNNING}
    while more := {follower for state in reached for follower in FOLLOWERS[state]} - reached:
        reached |= more
    assert reached == set(WorkerState)
    assert [state for state in WorkerState if not FOLLOWERS[state]] == [WorkerState.LOST]


@pytest.mark.parametrize("state", WorkerState)
def test_a_transition_outside_of_the_table_is_refused(state: WorkerState) -> None:
    for follower in WorkerState:
        if follower in FOLLOWERS[state]:
            assert Life(state).then(follower, RemudaError) == Life(follower, RemudaError)
        else:
            with pytest.raises(RuntimeError, match=f"after {state}, got {follower}"):
                Life(state).then(follower)
