"""Simulators that never make their graphics context current render the same pictures in a pool as alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pairs import each
from simulated_pictures import METAWORLD, MUJOCO, frames, require, variables

from remuda import EnvError, Pool

SIMULATORS = [("egl", MUJOCO), ("osmesa", MUJOCO), ("egl", METAWORLD), ("osmesa", METAWORLD)]


def fails() -> Any:
    raise ValueError("no such task")


def alone(env_fn: Any, gl: str) -> Any:
    with Pool([env_fn], num_workers=1, worker_env=variables(gl), start_timeout=300) as pool:
        return frames(pool)


def same(drawn: Any, env: int, expected: Any) -> bool:
    return all(np.array_equal(one[env], other[0]) for one, other in zip(drawn, expected, strict=True))


@each(gl__env_fns=SIMULATORS)
def test_by_default_each_env_renders_the_pictures_that_it_renders_alone(gl: str, env_fns: Any) -> None:
    require(gl)
    with Pool(env_fns, num_workers="auto", worker_env=variables(gl), start_timeout=300) as pool:
        drawn = frames(pool)
    assert [same(drawn, i, alone(env_fn, gl)) for i, env_fn in enumerate(env_fns)] == [True] * len(env_fns)


@each(gl__env_fns=SIMULATORS)
def test_a_replacement_renders_the_pictures_that_it_renders_alone(gl: str, env_fns: Any) -> None:
    require(gl)
    first, second, _ = env_fns
    with Pool([first], num_workers=1, worker_env=variables(gl), start_timeout=300) as pool:
        expected = frames(pool)
        pool.replace([0], [second])
        assert same(frames(pool), 0, alone(second, gl))
        pool.replace([0], [first])
        assert same(frames(pool), 0, expected)
        with pytest.raises(EnvError, match="no such task"):
            pool.replace([0], [fails])
        assert same(frames(pool), 0, expected)


@each(gl__env_fns=SIMULATORS[1:2])
def test_envs_that_share_a_process_render_wrong_pictures_and_cause_a_warning(
    gl: str, env_fns: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Without wrong pictures here, the warning would no longer be true."""
    require(gl)
    with Pool(env_fns, num_workers=1, worker_env=variables(gl), start_timeout=300) as pool:
        drawn = frames(pool)
    assert not all(same(drawn, i, alone(env_fn, gl)) for i, env_fn in enumerate(env_fns))
    assert "envs 0, 1, 2 in the process of worker 0" in caplog.text
