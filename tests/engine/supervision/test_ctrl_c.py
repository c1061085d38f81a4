"""Ctrl-C in an env that the caller steps is no fault: the caller receives KeyboardInterrupt, and nothing restarts."""

from __future__ import annotations

from pathlib import Path

import accidents
import pytest
from accidents import once
from odd_exceptions import raising
from pool_envs import hooked

from remuda import Pool, StateError

interrupt = raising(KeyboardInterrupt)


@pytest.mark.parametrize("phase", ["reset", "step", "call"])
def test_ctrl_c_reaches_the_caller(phase: str, tmp_path: Path) -> None:
    hooks = {phase: once(tmp_path / "interrupted", interrupt)}
    with Pool(hooked(2, **hooks), backend="serial", faults="restart") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.reset(), pool.step([1, 1]), pool.call("poke")
        if pool.pending:
            pool.recv()
        if phase != "call":
            with pytest.raises(StateError, match="env 1; call reset first"):
                pool.step([1, 1])
        pool.reset()
        assert not pool.step([1, 1]).truncated.any()


def test_ctrl_c_reaches_the_caller_from_a_rebuild_and_the_rebuild_is_repeated(tmp_path: Path) -> None:
    hooks = {
        "build": once(tmp_path / "interrupted", interrupt, skip=1),
        "step": once(tmp_path / "reason", accidents.raise_value_error),
    }
    with Pool(hooked(2, **hooks), backend="serial", faults="restart", autoreset="same_step") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step([1, 1])
        batch = pool.recv()
        assert (batch.truncated.tolist(), batch.obs[1].tolist()) == ([False, True], [1, 1, 0, -1])
        assert pool.step([1, 1]).obs[1].tolist() == [1, 1, 1, 1]
