"""Envs that draw: each one has its own process by default. If several share a process, the pool warns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from drawing_envs import ContextEnv, PixelEnv, TextEnv, ViewingEnv, colour, forget_graphics
from gymnasium.vector import SyncVectorEnv

from remuda import Pool


@pytest.fixture(autouse=True)
def no_graphics_of_other_tests() -> None:
    forget_graphics()


def drawing(num_envs: int, kind: Any = ViewingEnv) -> list[Callable[[], Any]]:
    return [partial(kind, i) for i in range(num_envs)]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "alone in its process" in record.getMessage()]


def test_each_env_that_draws_in_its_steps_has_its_own_worker_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Pool(drawing(3), num_workers="auto") as pool:
        assert pool.num_workers == 3
        assert "it draws in its steps (render_mode='rgb_array')" in str(pool.choice)
        pool.reset(seed=0)
        assert pool.step([0, 0, 0]).obs[:, 0, 0, 0].tolist() == [colour(0, 1), colour(1, 1), colour(2, 1)]
        assert pool.stats().setup.is_chosen
    with Pool(drawing(1), num_workers="auto", backend="auto") as pool:  # the caller does not step it
        assert pool.backend == "process"
    with Pool([TextEnv] * 2, num_workers="auto") as pool:
        assert "draws" not in str(pool.choice)
    assert not warnings_of(caplog)


@pytest.mark.parametrize(
    ("options", "place", "advice"),
    [
        ({"num_workers": 2}, "envs 0, 1 in the process of worker 0", "use num_workers=None"),
        ({"num_workers": 1, "lazy": True}, "envs 0, 1, 2 in the process of worker 0", "use num_workers=None"),
        ({"backend": "thread"}, "envs 0, 1, 2 in the caller's process", "use backend='process' and num_workers=None"),
        ({"backend": "serial"}, "envs 0, 1, 2 in the caller's process", "use backend='process' and num_workers=None"),
    ],
)
@pytest.mark.parametrize("kind", [ViewingEnv, ContextEnv])
def test_envs_that_draw_in_one_process_cause_one_warning(
    kind: Any, options: Any, place: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Envs that draw only on request cause it at the first request."""
    with Pool(drawing(3, kind), **options) as pool:
        assert pool.num_workers == options.get("num_workers", pool.num_workers)
        pool.replace([2], [partial(kind, 5)])
        pool.reset()
        pool.step([0, 0, 0])
        assert len(warnings_of(caplog)) == (kind is ViewingEnv)
        pool.render()
        pool.call("render")
    (warning,) = warnings_of(caplog)
    assert place in warning
    assert advice in warning
    assert "remuda doctor" in warning


@pytest.mark.parametrize(
    ("env_fns", "options"),
    [
        ([*drawing(1), PixelEnv, PixelEnv], {"num_workers": 1}),
        ([*drawing(1), PixelEnv, PixelEnv], {"backend": "serial"}),
        ([*drawing(1), PixelEnv, *drawing(1)], {"num_workers": 2}),
        (drawing(3), {"num_workers": None}),
        ([TextEnv] * 3, {"num_workers": 1}),
    ],
)
def test_one_env_that_draws_in_a_process_causes_no_warning_until_a_second_one_is_put_there(
    env_fns: Any, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with Pool(env_fns, **options) as pool:
        assert not warnings_of(caplog)
        if env_fns[0] is not TextEnv and options == {"num_workers": 1}:
            pool.replace([1], drawing(1))
            assert len(warnings_of(caplog)) == 1


class DrawingVector(SyncVectorEnv):
    def __init__(self) -> None:
        super().__init__([ViewingEnv] * 2)
        self.render_mode = "rgb_array"


@pytest.mark.parametrize(("num_workers", "count"), [(1, 1), (2, 0), ("auto", 0)])
def test_a_vector_env_counts_as_one_env(num_workers: Any, count: int, caplog: pytest.LogCaptureFixture) -> None:
    with Pool([DrawingVector] * 2, vector_size=2, num_workers=num_workers) as pool:
        assert pool.num_workers == (2 if num_workers == "auto" else num_workers)
    assert len(warnings_of(caplog)) == count


def test_programs_that_set_a_render_mode_and_do_not_use_it_get_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Stable-Baselines3's `make_vec_env` always sets one."""
    with Pool([partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")] * 4, num_workers="auto") as pool:
        assert pool.choice is not None and pool.num_workers < 4
        pool.reset()
        pool.step([0, 0, 0, 0])
        assert not warnings_of(caplog)
        pool.render()
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("wrapper", ["RecordVideo", "RenderCollection", "AddRenderObservation"])
def test_envs_in_wrappers_that_draw_have_their_own_workers(wrapper: str, tmp_path: Path) -> None:
    found = getattr(gymnasium.wrappers, wrapper, None)
    if found is None:
        pytest.skip(f"this Gymnasium has no {wrapper}")
    more = {"video_folder": str(tmp_path)} if wrapper == "RecordVideo" else {}

    def make() -> Any:
        return found(gymnasium.make("CartPole-v1", render_mode="rgb_array"), **more)

    with Pool([make] * 2, num_workers="auto") as pool:
        assert "it draws in its steps" in str(pool.choice)
