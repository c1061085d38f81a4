"""Simulators that never make their graphics context current render the same pictures in a pool as alone."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from drawn import MINUTES
from gymnasium.envs.registration import registry

from remuda import EnvError, Pool

_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}
_SIZE = {"width": 64, "height": 64}


def variables(gl: str) -> dict[str, str]:
    """Returns environment variables for workers that render with this library on their own cores.

    The first import of MuJoCo sets PYOPENGL_PLATFORM for all child processes, and a worker with another value fails.
    """
    return {"MUJOCO_GL": gl, "PYOPENGL_PLATFORM": gl, "LP_NUM_THREADS": "0"}


def require(gl: str) -> None:
    """Skips the test if the library is missing."""
    if ctypes.util.find_library(_LIBRARIES[gl]) is None:
        packages = "libegl1 libegl-mesa0 libgl1-mesa-dri libosmesa6"
        pytest.skip(f"lib{_LIBRARIES[gl]} is missing: apt install {packages}")


class Played(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that gives each env the same spaces, and draws the same actions after each reset.

    The first episode after each build is the same. (MetaWorld draws later ones from its own generators.)
    """

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        super().__init__(make())
        self._actions = self.env.action_space
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._actions.seed(0)
        self.env.reset(seed=0)
        return 0, {}

    def step(self, _: Any) -> Any:
        self.env.step(self._actions.sample())
        return 0, 0.0, False, False, {}


def _make(env_id: str, **arguments: Any) -> Played:
    return Played(partial(gymnasium.make, env_id, render_mode="rgb_array", disable_env_checker=True, **arguments))


def _make_task(task: str) -> Played:
    import metaworld  # noqa: F401 - the import registers the ids

    return _make("Meta-World/MT1", env_name=task, seed=0, **_SIZE)


MUJOCO = [partial(_make, env_id, **_SIZE) for env_id in ("HalfCheetah-v5", "Hopper-v5", "Ant-v5")]
METAWORLD = [partial(_make_task, task) for task in ("push-v3", "drawer-open-v3")]


def frames(pool: Any, count: int = 3) -> list[list[npt.NDArray[Any]]]:
    """Returns the picture of each env, for each step."""
    pool.reset()
    drawn = []
    for _ in range(count):
        pool.step([0] * pool.num_envs)
        drawn.append([np.array(picture) for picture in pool.call("render")])
    return drawn


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
