"""Envs that cannot be built anew at the first try, and what is told of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accidents
import pytest
from pool_envs import hooked

from remuda import FaultPolicy, Pool, RestartLimitError

ONE = FaultPolicy("restart", max_restarts=1, backoff=0)


def spoilt_when_built_again(directory: Path, accident: accidents.Accident, which: tuple[int, ...] = (1,)) -> list[Any]:
    """Two envs; the one dies in its first step, and its successor meets with the accident."""
    hooks = {
        "build": accidents.once(directory / "accident", accident, skip=1),
        "step": accidents.once(directory / "reason", accidents.kill_myself),
    }
    return hooked(2, which=which, **hooks)


@pytest.mark.parametrize(
    ("accident", "kind"),
    [
        (accidents.kill_myself, "death"),
        (accidents.raise_value_error, "exception"),
        (accidents.stop_myself, "timeout"),
    ],
)
def test_a_fault_of_a_successor_is_called_what_it_is(accident: accidents.Accident, kind: str, tmp_path: Path) -> None:
    with Pool(spoilt_when_built_again(tmp_path, accident), faults=ONE, start_timeout=2.0) as pool:
        pool.reset()
        assert pool.step([1, 1]).truncated.tolist() == [False, True]
        with pytest.raises(RestartLimitError) as raised:
            pool.step([1, 1])
    assert [(fault.kind, fault.operation) for fault in raised.value.faults] == [("death", "step"), (kind, "build")]


def test_the_env_that_could_not_be_built_is_named_and_not_the_first_of_its_worker(tmp_path: Path) -> None:
    env_fns = spoilt_when_built_again(tmp_path, accidents.raise_value_error)
    with Pool(env_fns, num_workers=1, faults=ONE) as pool:
        pool.reset()
        pool.step([1, 1])
        with pytest.raises(RestartLimitError) as raised:
            pool.step([1, 1])
    build = [fault for fault in raised.value.faults if fault.operation == "build"]
    assert [(fault.env_id, fault.shared) for fault in build] == [(0, True), (1, False)]
