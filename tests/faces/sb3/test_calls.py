"""The Stable-Baselines3 face apart from resets and steps: construction, calls with indices, pictures, wrong order,
closing."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from pool_envs import CountingEnv, Gate, counting, gated, hooked
from sb3_face_envs import HoldsAGenerator, PictureEnv, ResetInfoEnv, cartpoles
from sb3_originals import both
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

import remuda
from remuda import InvalidActionError, InvalidEnvError, SpaceMismatchError, StateError
from remuda.sb3 import ClosedError, EnvError, SubprocVecEnv

# -- making one ------------------------------------------------------------------------------------------


def test_the_face_is_a_vec_env_with_single_env_spaces() -> None:
    envs = SubprocVecEnv(cartpoles(3))
    assert isinstance(envs, VecEnv)
    assert envs.unwrapped is envs
    assert envs.num_envs == 3
    assert envs.observation_space.shape == (4,)
    assert envs.action_space == spaces.Discrete(2)
    assert (envs.waiting, envs.closed) == (False, False)
    assert envs.reset_infos == [{}, {}, {}]
    envs.close()


def test_each_env_has_its_own_process_by_default() -> None:
    each, shared = SubprocVecEnv(counting(4)), SubprocVecEnv(counting(4), num_workers=2)
    assert len(set(each.env_method("pid"))) == len(each.processes) == 4
    assert len(set(shared.env_method("pid"))) == len(shared.processes) == 2
    assert [process.pid for process in each.processes] == each.env_method("pid")
    assert all(process.is_alive() for process in each.processes)
    each.close()
    shared.close()
    assert not any(process.is_alive() for process in each.processes)


@pytest.mark.parametrize("start_method", [None, "forkserver", "spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_each_start_method_works(start_method: str | None) -> None:
    envs = SubprocVecEnv(counting(2), start_method)
    assert envs.reset()[:, 0].tolist() == [0, 1]
    envs.close()


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot find context for 'no_such_method'"):
        SubprocVecEnv(counting(1), start_method="no_such_method")


def test_the_error_for_envs_in_place_of_factories_says_what_to_write() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(
        TypeError, match="expected env_fns to be a sequence of functions that build an env each, got <Tim"
    ):
        SubprocVecEnv(env)
    with pytest.raises(TypeError, match=r"write \[lambda: gymnasium.make\('CartPole-v1'\)\] \* 8"):
        SubprocVecEnv("CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected env_fns\[1\] to be a function that builds an env, got <TimeLimit"):
        SubprocVecEnv([lambda: env, env])


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="num_wrokers"):
        SubprocVecEnv(counting(1), num_wrokers=3)  # type: ignore[call-arg]


def test_an_empty_list_of_envs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one env"):
        SubprocVecEnv([])


def test_an_object_that_is_no_env_is_refused() -> None:
    with pytest.raises(EnvError, match="not a Gymnasium environment") as raised:
        SubprocVecEnv([lambda: "an env"])  # type: ignore[list-item, return-value]
    assert isinstance(raised.value.__cause__, ValueError)


def test_envs_with_different_spaces_are_refused() -> None:
    with pytest.raises(SpaceMismatchError):
        SubprocVecEnv([CountingEnv, ResetInfoEnv])


def test_the_same_env_object_twice_is_refused() -> None:
    env = CountingEnv()
    with pytest.raises(InvalidEnvError, match="same object"):
        SubprocVecEnv([lambda: env] * 2, num_workers=1, backend="serial")


def test_envs_with_different_render_modes_are_refused() -> None:
    with pytest.raises(AssertionError, match="render_mode"):
        SubprocVecEnv([PictureEnv, lambda: PictureEnv(render_mode=None)])


def test_options_of_the_pool_are_accepted(tmp_path: Path) -> None:
    envs = SubprocVecEnv(
        counting(2),
        frames=2,
        preload=["wave"],
        threads_per_worker=None,
        start_timeout=None,
        max_concurrency=1,
        pin_workers=True,
        faults=remuda.FaultPolicy("restart"),
        crash_dir=tmp_path / "records",
        worker_output=tmp_path / "output",
        log_advice=False,
        name="Worker of mine",
    )
    envs.reset()
    envs.step(np.array([1, 2]))
    envs.close()
    assert [process.name for process in envs.processes] == ["Worker of mine-0", "Worker of mine-1"]
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["worker-0.log", "worker-1.log"]


def test_make_vec_env(tmp_path: Path) -> None:
    envs = make_vec_env(
        "CartPole-v1",
        n_envs=3,
        seed=4,
        monitor_dir=str(tmp_path),
        wrapper_class=RecordEpisodeStatistics,
        vec_env_cls=SubprocVecEnv,  # type: ignore[arg-type]
        vec_env_kwargs={"num_workers": 2},
    )
    assert isinstance(envs, SubprocVecEnv)
    assert len(envs.processes) == 2
    assert envs.env_is_wrapped(Monitor) == [True] * 3
    expected = [gymnasium.make("CartPole-v1").reset(seed=4 + i)[0] for i in range(3)]
    assert np.array_equal(envs.reset(), np.stack(expected))
    assert len(list(tmp_path.iterdir())) == 3
    envs.close()


# -- calls -----------------------------------------------------------------------------------------------

INDICES: dict[str, Any] = {
    "all": None,
    "one": 1,
    "of NumPy": np.int64(2),
    "the last": -1,
    "some": [2, 0],
    "a tuple": (1,),
    "an array": np.array([0, 2]),
    "a range": range(1, 3),
    "a generator": (i for i in (2, 1)),
    "one twice": [1, 1, 0],
    "none": [],
}


@pytest.mark.parametrize("indices", INDICES.values(), ids=INDICES.keys())
def test_indices_select_envs(indices: Any) -> None:
    expected = {"all": [0, 1, 2], "one": [1], "of NumPy": [2], "the last": [2], "some": [2, 0], "a tuple": [1]}
    expected |= {"an array": [0, 2], "a range": [1, 2], "a generator": [2, 1], "one twice": [1, 1, 0], "none": []}
    name = next(name for name, value in INDICES.items() if value is indices)
    envs = SubprocVecEnv(counting(3), num_workers=2)
    assert envs.get_attr("tag", indices) == expected[name]
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


def test_unknown_indices_are_refused() -> None:
    envs = SubprocVecEnv(counting(2))
    for wrong in (2, -3, [0, 5]):
        with pytest.raises(IndexError, match="2 envs"):
            envs.get_attr("tag", wrong)
    envs.close()


def test_an_attribute_is_read_from_inner_envs_and_set_on_the_wrapper() -> None:
    with both([lambda: TimeLimit(CountingEnv(), 3)] * 2) as sides:
        for envs in sides:
            envs.set_attr("tag", 5)
            assert envs.get_attr("tag") == [5, 5]
            assert [env.tag for env in envs.get_attr("unwrapped")] == [0, 0]


def test_get_attr_reads_and_env_method_calls_an_attribute() -> None:
    envs = SubprocVecEnv(counting(2))
    assert envs.get_attr("steps") == [0, 0]
    with pytest.raises(EnvError, match="not callable"):
        envs.env_method("steps")
    assert envs.env_method("observe")[1].tolist() == [1, 0, 0, -1]
    envs.close()


def test_has_attr_works_for_attributes_that_cannot_be_pickled() -> None:
    envs = SubprocVecEnv([lambda: HoldsAGenerator()] * 2)
    assert envs.has_attr("generator")
    with pytest.raises(EnvError, match="generator"):
        envs.get_attr("generator")
    assert envs.get_attr("steps") == [0, 0]
    envs.close()


def test_a_missing_attribute_raises_and_the_envs_keep_working() -> None:
    envs = SubprocVecEnv(counting(2))
    envs.reset()
    with pytest.raises(EOFError, match="no_such_thing") as raised:
        envs.get_attr("no_such_thing")
    assert isinstance(raised.value.__cause__, AttributeError)
    assert not envs.has_attr("no_such_thing")
    assert envs.step(np.array([1, 2]))[0][:, 3].tolist() == [1, 2]
    envs.close()


def test_a_call_during_a_step_leaves_the_step_in_flight(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = SubprocVecEnv(gated([None, gate]))
    envs.reset()
    envs.step_async(np.array([3, 4]))
    assert envs.waiting
    assert envs.get_attr("tag", 0) == [0]
    gate.let_pass()
    assert envs.get_attr("last_action") == [3, 4]
    assert envs.step_wait()[0][:, 3].tolist() == [3, 4]
    assert not envs.waiting
    envs.close()


def test_set_attr_reaches_spares() -> None:
    envs = SubprocVecEnv([lambda: CountingEnv(length=1)] * 3, spares=1)
    assert envs.num_envs == 2
    envs.set_attr("tag", 9)
    envs.seed(0)
    assert envs.reset()[:, 0].tolist() == [9, 9]
    for _ in range(3):  # every env is in a slot once
        assert envs.step(np.array([1, 1]))[0][:, 0].tolist() == [9, 9]
    envs.close()


# -- keep_options -----------------------------------------------------------------------------------------


def last_options(envs: SubprocVecEnv) -> list[Any]:
    return [info["options"] for info in envs.reset_infos]


def test_keep_options_applies_to_automatic_resets() -> None:
    envs = SubprocVecEnv([ResetInfoEnv] * 2, keep_options=True)
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


def test_by_default_options_apply_to_one_reset() -> None:
    envs = SubprocVecEnv([ResetInfoEnv] * 2)
    envs.set_options({"map": 1})
    envs.reset()
    assert last_options(envs) == [{"map": 1}] * 2
    for _ in range(2):
        envs.step(np.array([0, 0]))
    assert last_options(envs) == [None] * 2
    envs.close()


# -- pictures --------------------------------------------------------------------------------------------


def test_render_tiles_the_pictures_of_all_envs() -> None:
    with both([lambda colour=c: PictureEnv(colour) for c in (10, 20, 30)]) as (ours, original):  # type: ignore[misc]
        assert [image[0, 0, 0] for image in ours.get_images()] == [10, 20, 30]
        tiled = ours.render()
        assert tiled is not None
        assert tiled.shape == (72, 80, 3)
        assert np.array_equal(tiled, original.render())
        assert np.array_equal(tiled, ours.render("rgb_array"))
        assert ours.metadata == {"render_modes": ["human", "rgb_array"], "render_fps": 12}


@pytest.mark.parametrize("mode", ["human", "ansi"])
def test_envs_with_human_or_ansi_mode_render_themselves(mode: str) -> None:
    envs = SubprocVecEnv([lambda: PictureEnv(render_mode=mode)] * 2)
    assert envs.render() is None
    assert envs.get_attr("renders") == [1, 1]
    with pytest.warns(UserWarning, match=mode):
        assert envs.get_images() == [None, None]
    envs.close()


def test_without_a_render_mode_render_warns() -> None:
    envs = SubprocVecEnv([lambda: PictureEnv(render_mode=None)] * 2)
    assert envs.render_mode is None
    with pytest.warns(UserWarning, match="no `render_mode`"):
        assert envs.render() is None
    with pytest.warns(UserWarning, match="got None"):
        assert envs.get_images() == [None, None]
    envs.close()


# -- calls in a wrong order -------------------------------------------------------------------------------


def test_actions_that_do_not_fit_are_not_sent() -> None:
    envs = SubprocVecEnv(counting(2))
    envs.reset()
    for wrong in ([1], [1, 2, 3], [1, 5000], ["a", "b"]):
        with pytest.raises(InvalidActionError):
            envs.step(wrong)
        assert not envs.waiting
    assert envs.get_attr("total_steps") == [0, 0]
    assert envs.step([1, 2])[0][:, 3].tolist() == [1, 2]
    envs.close()


def test_dicts_of_actions_that_do_not_fit_are_refused() -> None:
    space = spaces.Dict(a=spaces.Box(-1, 1, (1,)))
    envs = SubprocVecEnv([lambda: ResetInfoEnv(space)] * 2)
    envs.reset()
    for wrong in ([{"a": np.zeros(1)}], [{"b": 1}, {"b": 2}], [1, 2]):
        with pytest.raises(InvalidActionError):
            envs.step(wrong)
    envs.close()


def test_a_step_before_the_reset_raises() -> None:
    envs = SubprocVecEnv(counting(2))
    with pytest.raises(StateError):
        envs.step([1, 1])
    assert not envs.waiting
    envs.close()


def test_step_wait_without_a_step_and_a_second_step_async_raise() -> None:
    envs = SubprocVecEnv(counting(2))
    envs.reset()
    with pytest.raises(StateError):
        envs.step_wait()
    envs.step_async([1, 2])
    with pytest.raises(StateError):
        envs.step_async([3, 4])
    assert envs.step_wait()[0][:, 3].tolist() == [1, 2]
    envs.close()


def test_a_reset_drops_the_step_in_flight() -> None:
    envs = SubprocVecEnv(counting(2))
    envs.reset()
    envs.step_async([1, 2])
    assert envs.reset().tolist() == [[0, 2, 0, -1], [1, 2, 0, -1]]
    assert not envs.waiting
    assert envs.step([3, 4])[0][:, 3].tolist() == [3, 4]
    envs.close()


def test_observations_are_never_overwritten() -> None:
    envs = SubprocVecEnv(counting(2), frames=2)
    kept = [envs.reset()] + [envs.step([i, i])[0] for i in range(8)]
    assert [obs[1, 3] for obs in kept] == [-1, *range(8)]
    kept[-1][:] = 0  # the caller may modify them
    assert envs.step([9, 9])[0][1].tolist() == [1, 1, 9, 9]
    envs.close()
    assert [obs[1, 3] for obs in kept[:-1]] == [-1, *range(7)]


def test_only_observations_are_leased() -> None:
    envs = SubprocVecEnv([lambda: CountingEnv(length=1)] * 2)
    envs.reset()
    _, rewards, dones, infos = envs.step([1, 2])
    assert rewards.base is dones.base is infos[0]["terminal_observation"].base is None
    envs.close()


# -- closing ---------------------------------------------------------------------------------------------


def test_a_closed_vector_env_refuses_calls() -> None:
    envs = SubprocVecEnv(counting(2))
    envs.reset()
    envs.step_async([1, 2])
    envs.close()
    assert (envs.closed, envs.waiting) == (True, False)
    envs.close()
    for call in (
        envs.reset,
        lambda: envs.step([1, 2]),
        lambda: envs.get_attr("tag"),
        lambda: envs.seed() and envs.reset(),
    ):
        with pytest.raises(ClosedError, match="^the vector env is closed") as raised:
            call()
        assert isinstance(raised.value, OSError)


def test_close_waits_for_the_step_in_flight(tmp_path: Path) -> None:
    done = tmp_path / "done"
    envs = SubprocVecEnv(hooked(2, step=lambda *_: done.write_text("")))
    envs.reset()
    envs.step_async([1, 2])
    envs.close()
    assert done.exists()


def test_an_exception_in_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(env: Any) -> None:
        raise ValueError("not now")

    envs = SubprocVecEnv(hooked(2, close=refuse))
    envs.reset()
    envs.close()
    assert envs.closed
    assert not any(process.is_alive() for process in envs.processes)
    assert "env 1 (worker 1) raised ValueError in close: not now" in caplog.text


def test_a_garbage_collected_vector_env_ends_its_workers() -> None:
    envs = SubprocVecEnv(counting(2))
    pids = envs.env_method("pid")
    del envs
    gc.collect()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_num_workers_auto_measures_and_chooses_a_number() -> None:
    envs = SubprocVecEnv(counting(2), num_workers="auto", preload=())
    assert 1 <= len(envs.processes) <= 2
    assert envs.reset().shape == (2, 4)
    envs.close()
