"""Simulators that never make their graphics context current render the same pictures in a pool as alone."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from drawn import MINUTES
from gymnasium.envs.registration import registry
from simulated_pictures import METAWORLD, MUJOCO, frames, require, variables

from remuda import EnvError, Pool

SIMULATORS = [("osmesa", MUJOCO[:2])]
if MINUTES:  # each starts many processes of simulators
    SIMULATORS += [("egl", MUJOCO[:2]), ("osmesa", METAWORLD), ("egl", METAWORLD)]
pytestmark = pytest.mark.watchdog(900)


@pytest.fixture(autouse=True)
def _no_id_of_metaworld_is_left() -> Iterator[None]:
    """Forgets MetaWorld's env ids. Their entry points are lambdas, so each later worker would import MetaWorld for a
    second.
    """
    yield
    for env_id in [env_id for env_id in registry if env_id.startswith("Meta-World/")]:
        del registry[env_id]


def fails() -> Any:
    raise ValueError("no such task")


def start(env_fns: Any, gl: str, num_workers: Any) -> Pool:
    return Pool(env_fns, num_workers=num_workers, worker_env=variables(gl), start_timeout=300)


def alone(env_fns: Any, gl: str) -> list[Any]:
    """Returns the pictures of each env in a process without other envs."""
    with start(env_fns, gl, len(env_fns)) as pool:
        return by_env(frames(pool))


def by_env(drawn: Any) -> list[Any]:
    """Returns the digests of the pictures of each env, because differences of pictures would fill pages."""
    return [[sha256(picture).hexdigest() for picture in its] for its in zip(*drawn, strict=True)]


@pytest.mark.parametrize(("gl", "env_fns"), SIMULATORS)
def test_by_default_each_env_and_its_replacement_render_the_pictures_that_they_render_alone(
    gl: str, env_fns: Any
) -> None:
    require(gl)
    first, second = as_alone = alone(env_fns, gl)
    with start(env_fns, gl, "auto") as pool:
        assert by_env(frames(pool)) == as_alone
        pool.replace([0], [env_fns[1]])
        assert by_env(frames(pool))[0] == second
        pool.replace([0], [env_fns[0]])
        assert by_env(frames(pool))[0] == first
        with pytest.raises(EnvError, match="no such task"):
            pool.replace([0], [fails])
        assert by_env(frames(pool))[0] == first


def test_envs_that_share_a_process_render_wrong_pictures_and_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Without wrong pictures here, the warning would no longer be true."""
    gl, env_fns = "osmesa", MUJOCO[:2]
    require(gl)
    with start(env_fns, gl, 1) as pool:
        drawn = by_env(frames(pool))
    assert drawn != alone(env_fns, gl)
    assert "envs 0, 1 in the process of worker 0" in caplog.text
