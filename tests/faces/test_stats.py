"""``stats()`` of every face reports on its pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from fault_table import FACES, NEEDS

from remuda import ClosedError, FaultPolicy, StateError
from remuda.stats import PoolStats

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the imitated libraries use deprecated functions
    pytest.mark.parametrize("face", sorted(FACES)),
]


@contextmanager
def made(face: str) -> Iterator[Any]:
    """Yields two envs behind this face and closes them."""
    pytest.importorskip(NEEDS.get(face, face), reason=f"{face} is not tested in this environment")
    envs = FACES[face].make("step", _nothing, FaultPolicy(), None)
    try:
        yield envs
    finally:
        envs.close()


def _nothing(*_: Any) -> None:
    """Env 1 calls this function in each step."""


def step(face: str, envs: Any) -> None:
    """Launches the envs if the face requires it, then resets and steps them."""
    if hasattr(envs, "launch"):
        envs.launch()
    FACES[face].go_on(envs)


def stats_of(face: str) -> PoolStats:
    """Returns the face's stats after a reset and a step."""
    with made(face) as envs:
        step(face, envs)
        stats: PoolStats = envs.stats()
        return stats


def test_stats_count_the_envs_and_steps_of_the_face(face: str) -> None:
    stats = stats_of(face)
    assert stats.setup.num_envs == len(stats.envs) == 2
    assert stats.steps >= 4
    assert stats.seconds > 0
    assert "2 envs" in str(stats)


def test_stats_of_a_closed_face_raise(face: str) -> None:
    with made(face) as envs:
        with suppress(StateError):  # faces that start their workers at first use
            envs.stats()
        step(face, envs)
        envs.close()
        with pytest.raises((ClosedError, StateError)):
            envs.stats()
