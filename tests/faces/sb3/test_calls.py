"""The Stable-Baselines3 face apart from resets and steps: construction, calls with indices, pictures, wrong order,
closing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from gymnasium_face_envs import ResetInfoEnv, rewarding
from pool_envs import CountingEnv, DrawingEnv, counting, drawing, hooked
from sb3_originals import both

from remuda import InvalidActionError, StateError
from remuda.sb3 import ClosedError, EnvError, SubprocVecEnv


@pytest.fixture
def envs() -> Iterator[SubprocVecEnv]:
    """Yields two CountingEnvs that have been reset."""
    made = SubprocVecEnv(counting(2), backend="serial")
    made.reset()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("keyword", "value", "instead"),
    [
        ("seed", 0, r"; call envs.seed\(0\) before envs.reset\(\)"),
        ("options", {}, r"; call envs.set_options\({...}\) before envs.reset\(\)"),
        ("sed", 0, ""),
    ],
)
def test_the_error_of_an_unknown_argument_names_the_class_and_the_right_call(
    envs: SubprocVecEnv, keyword: str, value: Any, instead: str
) -> None:
    error = rf"^SubprocVecEnv.reset\(\) got an unexpected keyword argument '{keyword}'{instead}$"
    with pytest.raises(TypeError, match=error):
        envs.reset(**{keyword: value})


# -- making one ------------------------------------------------------------------------------------------


def test_the_start_method_is_the_second_argument_and_must_be_known_as_in_sb3() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'no_such_method'"):
        SubprocVecEnv(counting(1), "no_such_method")


def test_other_objects_and_envs_with_different_render_modes_are_refused() -> None:
    with pytest.raises(EnvError, match="not a Gymnasium environment") as raised:
        SubprocVecEnv([lambda: "an env"])  # type: ignore[list-item, return-value]
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(AssertionError, match="render_mode"):
        SubprocVecEnv([DrawingEnv, CountingEnv])


# -- calls -----------------------------------------------------------------------------------------------


def test_indices_select_envs() -> None:
    envs = SubprocVecEnv(counting(3), num_workers=2, backend="serial")
    some: list[tuple[Any, list[int]]] = [
        *((None, [0, 1, 2]), (1, [1]), (np.int64(2), [2]), (-1, [2]), ([2, 0], [2, 0]), ((1,), [1])),
        *((np.array([0, 2]), [0, 2]), (range(1, 3), [1, 2]), ((i for i in (2, 1)), [2, 1])),
        *(([1, 1, 0], [1, 1, 0]), ([], [])),
    ]
    for indices, expected in some:
        assert envs.get_attr("tag", indices) == expected
    for wrong in (3, -4, [0, 5]):
        with pytest.raises(IndexError, match="3 envs"):
            envs.get_attr("tag", wrong)
    envs.close()


def test_every_method_takes_indices() -> None:
    envs = SubprocVecEnv([lambda: TimeLimit(CountingEnv(), 3), *counting(2)], num_workers=2)
    assert envs.env_is_wrapped(TimeLimit) == [True, False, False]
    assert envs.env_is_wrapped(TimeLimit, indices=[2, 0]) == [False, True]
    assert envs.env_method("echo", 1, indices=1, key=2) == [((1,), {"key": 2})]
    assert envs.env_method("echo") == [((), {})] * 3
    envs.set_attr("mark", 7, indices=[1])
    assert envs.get_attr("mark", 1) == [7]
    assert not envs.has_attr("mark")
    envs.set_attr("mark", 8)
    assert envs.get_attr("mark") == [8] * 3
    assert envs.has_attr("mark")
    envs.close()


def test_an_attribute_is_read_from_inner_envs_and_set_on_the_wrapper() -> None:
    with both([lambda: TimeLimit(CountingEnv(), 3)] * 2) as sides:
        for envs in sides:
            envs.set_attr("tag", 5)
            assert envs.get_attr("tag") == [5, 5]
            assert [env.tag for env in envs.get_attr("unwrapped")] == [0, 0]


def test_after_a_call_that_raises_the_envs_keep_working() -> None:
    def build(env: Any) -> None:
        env.generator = (i for i in range(3))

    with closing(SubprocVecEnv(hooked(2, (0, 1), build=build))) as envs:
        envs.reset()
        assert envs.has_attr("generator") and not envs.has_attr("no_such_thing")
        with pytest.raises(EnvError, match="generator"):  # it cannot be pickled
            envs.get_attr("generator")
        with pytest.raises(EOFError, match="no_such_thing") as raised:
            envs.get_attr("no_such_thing")
        assert isinstance(raised.value.__cause__, AttributeError)
        with pytest.raises(EnvError, match="not callable"):
            envs.env_method("steps")
        assert envs.step(np.array([1, 2]))[0][:, 3].tolist() == [1, 2]


def test_set_attr_reaches_spares() -> None:
    envs = SubprocVecEnv([lambda: CountingEnv(length=1)] * 3, spares=1)
    assert envs.num_envs == 2
    envs.set_attr("tag", 9)
    envs.seed(0)
    assert envs.reset()[:, 0].tolist() == [9, 9]
    for _ in range(3):  # every env is in a slot once
        assert envs.step(np.array([1, 1]))[0][:, 0].tolist() == [9, 9]
    envs.close()


# -- keep_options ----------------------------------------------------------------------------------------


def last_options(envs: SubprocVecEnv) -> list[Any]:
    return [info["options"] for info in envs.reset_infos]


def test_keep_options_applies_to_automatic_resets() -> None:
    envs = SubprocVecEnv([ResetInfoEnv] * 2, keep_options=True, backend="serial")
    given = {"map": [1]}
    envs.set_options(given)
    given["map"].append(2)
    for _ in range(2):
        envs.reset()
        assert last_options(envs) == [{"map": [1]}] * 2
        for _ in range(4):
            envs.step(np.array([0, 0]))
        assert last_options(envs) == [{"map": [1]}] * 2
    envs.set_options([{"map": 3}, {}])
    for _ in range(2):
        envs.step(np.array([0, 0]))
    assert last_options(envs) == [{"map": 3}, None]
    envs.set_options()
    envs.reset()
    assert last_options(envs) == [None] * 2
    envs.close()


# -- pictures --------------------------------------------------------------------------------------------


def test_render_tiles_the_pictures_of_all_envs() -> None:
    with both(drawing(3)) as (ours, original):
        assert [image[0, 0, 0] for image in ours.get_images()] == [0, 1, 2]
        tiled = ours.render()
        assert tiled is not None
        assert tiled.shape == (4, 4, 3)
        assert np.array_equal(tiled, original.render())
        assert np.array_equal(tiled, ours.render("rgb_array"))
        assert ours.metadata == {"render_modes": ["human", "rgb_array"], "render_fps": 5}


@pytest.mark.filterwarnings("ignore:.*no `render_mode`")  # SB3's warning
@pytest.mark.parametrize("mode", ["human", "ansi", None])
def test_envs_without_rgb_array_render_themselves_or_not_at_all(mode: str | None) -> None:
    class Screen(CountingEnv):
        render_mode = mode
        renders = 0

        def render(self) -> None:
            self.renders += 1

    envs = SubprocVecEnv([Screen] * 2, backend="serial")
    assert envs.render_mode == mode
    assert envs.render() is None
    assert envs.get_attr("renders") == [int(mode is not None)] * 2
    with pytest.warns(UserWarning, match=f"got {mode!r}"):
        assert envs.get_images() == [None, None]
    envs.close()


# -- calls in a wrong order ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3), [[1], [1, 2, 3], [1, 5000], ["a", "b"]]),
        (spaces.Dict(a=spaces.Box(-1, 1, (1,))), [[{"a": np.zeros(1)}], [{"b": 1}, {"b": 2}], [1, 2]]),
    ],
    ids=["numbers", "dicts"],
)
def test_actions_that_do_not_fit_are_not_sent(space: Any, wrong: list[Any]) -> None:
    with closing(SubprocVecEnv([lambda: ResetInfoEnv(space)] * 2, backend="serial")) as envs:
        envs.reset()
        for actions in wrong:
            for send in (envs.step, envs.step_async):
                with pytest.raises(InvalidActionError):
                    send(actions)
                assert not envs.waiting
        assert envs.get_attr("steps") == [0, 0]


def test_calls_in_a_wrong_order_raise(envs: SubprocVecEnv) -> None:
    with pytest.raises(StateError):
        envs.step_wait()
    envs.step_async([1, 2])
    with pytest.raises(StateError):
        envs.step_async([3, 4])
    assert envs.step_wait()[0][:, 3].tolist() == [1, 2]
    envs.step_async([1, 2])
    assert envs.reset().tolist() == [[0, 2, 0, -1], [1, 2, 0, -1]]  # drops the step in flight
    assert not envs.waiting
    assert envs.step([3, 4])[0][:, 3].tolist() == [3, 4]
    fresh = SubprocVecEnv(counting(2), backend="serial")
    with pytest.raises(StateError):
        fresh.step([1, 1])
    assert not fresh.waiting
    fresh.close()


@pytest.mark.parametrize(
    "env_fn",
    [lambda: CountingEnv(length=2), rewarding([1.0, 2.5]), rewarding([1, 2])],
    ids=["without infos", "floats", "ints"],
)
def test_observations_alone_are_leased(env_fn: Any) -> None:
    with closing(SubprocVecEnv([env_fn] * 2, backend="serial")) as envs:
        envs.reset()
        for _ in range(2):  # the second step ends the episode
            obs, *results, infos = envs.step([0, 0])
            assert envs.pool.owns(obs)  # type: ignore[attr-defined]
            assert [array.base for array in results] == [None, None]
        assert not envs.pool.owns(np.asarray(infos[0]["terminal_observation"]))  # type: ignore[attr-defined]


# -- closing ---------------------------------------------------------------------------------------------


def test_a_closed_vector_env_refuses_calls(envs: SubprocVecEnv) -> None:
    envs.step_async([1, 2])
    envs.close()
    assert (envs.closed, envs.waiting) == (True, False)
    for call in (envs.reset, lambda: envs.step([1, 2]), lambda: envs.get_attr("tag")):
        with pytest.raises(ClosedError, match="^the vector env is closed") as raised:
            call()
        assert isinstance(raised.value, OSError)


def test_close_waits_for_the_step_in_flight_and_logs_an_exception(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(env: Any) -> None:
        raise ValueError("not now")

    done = tmp_path / "done"
    envs = SubprocVecEnv(hooked(2, step=lambda *_: done.write_text(""), close=refuse))
    envs.reset()
    envs.step_async([1, 2])
    envs.close()
    assert done.exists()
    assert not any(process.is_alive() for process in envs.processes)
    assert "env 1 (worker 1) raised ValueError in close: not now" in caplog.text
