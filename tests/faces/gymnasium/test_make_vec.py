"""``make_vec``, ``install`` and ``entry_point``: the ways to make vector envs apart from the class."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, async_vector_env, sync_vector_env
from gymnasium_face_envs import SpaceEnv
from gymnasium_originals import compare
from pool_envs import ColourSpace, CountingEnv

import remuda
from remuda.gymnasium import AsyncVectorEnv, entry_point, install, make_vec, uninstall


def test_the_defaults_make_one_env() -> None:
    assert remuda.make_vec is make_vec
    envs = make_vec("CartPole-v1")
    assert type(envs) is AsyncVectorEnv
    assert envs.num_envs == 1
    assert repr(envs) == "AsyncVectorEnv(CartPole-v1, num_envs=1)"
    assert envs.spec is not None
    assert envs.spec.kwargs == {"vectorization_mode": "async"}
    envs.close()


class NamedEnv(CountingEnv):
    def __init__(self, name: str = "nobody", frames: int = 1) -> None:
        super().__init__()
        self.given = name, frames


@pytest.mark.filterwarnings("ignore:.*ERROR")  # Gymnasium logs as warnings
def test_a_keyword_that_the_env_also_accepts_goes_to_the_env() -> None:
    gymnasium.register("Named-v0", NamedEnv, kwargs={"frames": 2})
    of_workers = {"name": "herd", "num_workers": 2}
    try:
        with closing(make_vec("Named-v0", 2, name="somebody", frames=3, vector_kwargs=of_workers)) as envs:
            assert envs.call("given") == (("somebody", 3),) * 2
            assert [worker.name for worker in envs.processes] == ["herd-0", "herd-1"]
    finally:
        del gymnasium.registry["Named-v0"]
    with pytest.raises(TypeError, match="argument 'name', which the env does not accept either; .* vector_kwargs"):
        make_vec("CartPole-v1", 2, name="herd")


def test_other_vectorization_modes_are_refused() -> None:
    for mode in ("sync", "nonsense", gymnasium.VectorizeMode.VECTOR_ENTRY_POINT):
        with pytest.raises(ValueError, match=r"gymnasium\.make_vec|not a valid VectorizeMode"):
            make_vec("CartPole-v1", vectorization_mode=mode)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"max_episode_steps": 5}, {"num_envs": 1, "autoreset_mode": AutoresetMode.NEXT_STEP}),
        (
            {"num_envs": 2, "num_workers": 1, "infos": "0.29", "sutton_barto_reward": True},
            {"num_envs": 2, "_has_old_infos": True},
        ),
        (
            {
                "vectorization_mode": gymnasium.VectorizeMode.ASYNC,
                "wrappers": (gymnasium.wrappers.TimeAwareObservation,),
                "vector_kwargs": {"copy": False, "autoreset_mode": "Disabled"},
            },
            {"copy": False, "autoreset_mode": AutoresetMode.DISABLED},
        ),
    ],
)
def test_the_spec_makes_an_equal_vector_env(kwargs: dict[str, Any], expected: dict[str, Any]) -> None:
    before = str(gymnasium.spec("CartPole-v1"))
    envs = make_vec("CartPole-v1", **kwargs)
    assert str(gymnasium.spec("CartPole-v1")) == before  # the registry is not changed
    again = make_vec(envs.spec)
    assert again.spec == envs.spec
    for name, value in expected.items():
        assert getattr(again, name) == getattr(envs, name) == value
    shape = (5,) if "wrappers" in kwargs else (4,)
    assert again.single_observation_space.shape == envs.single_observation_space.shape == shape
    assert len(again.processes) == len(envs.processes)
    envs.close()
    again.close()


def test_the_spec_of_gymnasiums_make_vec_makes_ours() -> None:
    reference = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync", sutton_barto_reward=True)
    ours = make_vec(reference.spec)
    assert type(ours) is AsyncVectorEnv
    ours.spec = reference.spec  # which has another vectorization mode
    compare(ours, reference, 5)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium logs as warnings
def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^make_vec\(\) got .* 'num_worker', which the env .* mean num_workers=\?$"):
        make_vec("CartPole-v1", 2, num_worker=2)
    with pytest.raises(TypeError, match=r"AsyncVectorEnv\(\) got .* 'num_worker'; did you mean num_workers=\?$"):
        make_vec("CartPole-v1", 2, vector_kwargs={"num_worker": 2})
    # neither the env nor make_vec accepts `height`
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'height'"):
        make_vec("CartPole-v1", 2, height=2)


def test_spaces_of_any_class_are_accepted() -> None:
    space = gymnasium.spaces.Dict(image=gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8), colour=ColourSpace())
    gymnasium.register("Colours-v0", lambda: SpaceEnv(space))
    with closing(make_vec("Colours-v0", 2, num_workers=1)) as envs:
        assert envs.reset(seed=1)[0] in envs.observation_space
    del gymnasium.registry["Colours-v0"]


def test_an_env_that_only_this_process_knows_is_found_by_its_id_or_its_name_alone() -> None:
    gymnasium.register("Echo-v0", CountingEnv, max_episode_steps=50)
    gymnasium.register("Echo-v3", CountingEnv)
    with pytest.warns(DeprecationWarning, match="out of date"), closing(make_vec("Echo-v0", 2, length=3)) as envs:
        assert envs.get_attr("length") == (3, 3)
    with pytest.warns(UserWarning, match="Using the latest versioned environment `Echo-v3`"):
        envs = make_vec("Echo")
    assert envs.spec is not None and envs.spec.id == "Echo-v3"
    envs.close()
    del gymnasium.registry["Echo-v0"], gymnasium.registry["Echo-v3"]


def test_the_module_in_the_id_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers_an_env.py").write_text(
        "import gymnasium\ngymnasium.register('FromModule-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    envs = make_vec("registers_an_env:FromModule-v0", 2)
    assert envs.reset(seed=1)[0].shape == (2, 4)
    envs.close()
    del gymnasium.registry["FromModule-v0"], sys.modules["registers_an_env"]


def test_an_id_without_an_env_is_refused() -> None:
    for unknown in ("NoSuchEnv-v0", "CartPole-v99", "bad id!"):
        with pytest.raises(gymnasium.error.Error):
            make_vec(unknown)
    gymnasium.register("VectorOnly-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")
    with pytest.raises(gymnasium.error.Error, match="doesn't have an entry point defined"):
        make_vec("VectorOnly-v0")
    del gymnasium.registry["VectorOnly-v0"]


# -- programs that name Gymnasium's class, or make envs that were registered with a vector entry point ---


ORIGINAL = gymnasium.vector.AsyncVectorEnv


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    yield
    uninstall()


def test_gymnasiums_make_vec_uses_remuda() -> None:
    install(num_workers=2, name="herd")
    with closing(gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="async")) as envs:
        assert isinstance(envs, AsyncVectorEnv) and type(envs) is gymnasium.vector.AsyncVectorEnv
        assert gymnasium.vector.VectorEnv in type(envs).__bases__  # by which some libraries recognise a vector env
        assert [worker.name for worker in envs.processes] == ["herd-0", "herd-1"]
        assert "CartPole" in str(envs)
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())


def test_arguments_of_the_program_override_the_options() -> None:
    install(context="spawn", shared_memory=False, num_workers=1)
    fns = [CountingEnv] * 2
    with closing(async_vector_env.AsyncVectorEnv(fns, True, True, "forkserver", num_workers=2)) as envs:
        assert (envs.shared_memory, envs.context, len(envs.processes)) == (True, "forkserver", 2)
    with closing(async_vector_env.AsyncVectorEnv(fns)) as envs:
        assert (envs.shared_memory, envs.context, len(envs.processes)) == (False, "spawn", 1)


def test_the_last_install_counts_and_uninstall_brings_the_class_back() -> None:
    install(num_workers=3)
    with closing(gymnasium.vector.AsyncVectorEnv([CountingEnv])) as envs:
        assert len(envs.processes) == 1  # there may be fewer envs than workers
    install(num_workers=2)
    with closing(gymnasium.vector.AsyncVectorEnv([CountingEnv] * 2)) as envs:
        assert len(envs.processes) == 2
        uninstall()
        uninstall()
        assert gymnasium.vector.AsyncVectorEnv is async_vector_env.AsyncVectorEnv is ORIGINAL
        envs.reset()


def test_sync_vector_envs_are_replaced_on_request() -> None:
    theirs = gymnasium.vector.SyncVectorEnv
    install(sync=True, backend="serial")
    for make in (gymnasium.vector.SyncVectorEnv, sync_vector_env.SyncVectorEnv):
        with closing(make([CountingEnv] * 2, False, "same", "SameStep")) as envs:
            assert isinstance(envs, AsyncVectorEnv) and envs.metadata["autoreset_mode"].value == "SameStep"
            assert (envs.copy, envs.shared_memory, envs.pool.backend) == (False, False, "serial")
    with pytest.raises(TypeError, match="too many positional arguments"):
        make([CountingEnv], True, "same", "SameStep", None)
    with pytest.raises(TypeError, match="multiple values for argument 'copy'"):
        make([CountingEnv], True, copy=False)
    install(backend="serial")
    assert gymnasium.vector.SyncVectorEnv is sync_vector_env.SyncVectorEnv is theirs


def test_an_unknown_option_of_install_is_refused() -> None:
    with pytest.raises(TypeError, match=r"install\(\) got an unexpected keyword argument 'num_worker'.*num_workers"):
        install(num_worker=2)  # type: ignore[call-arg]
    assert gymnasium.vector.AsyncVectorEnv is ORIGINAL


def test_lerobot_is_warned_of_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lerobot", ModuleType("lerobot"))
    install(num_workers=1)
    with pytest.warns(RuntimeWarning, match="counts the episode of an env that failed as a success of all envs"):
        install(num_workers=1, faults="restart")
    with pytest.warns(RuntimeWarning, match="as a success of all envs"):  # LeRobot may be imported after `install`
        gymnasium.vector.AsyncVectorEnv([CountingEnv]).close()


def test_an_entry_point_makes_registered_envs_on_remuda() -> None:
    point = entry_point(make_tagged, num_workers=2)
    gymnasium.register("Tagged-v0", make_tagged, vector_entry_point=point, kwargs={"tag": 5}, max_episode_steps=2)
    try:
        with closing(gymnasium.make_vec("Tagged-v0", num_envs=2)) as envs:
            assert isinstance(envs, AsyncVectorEnv) and len(envs.processes) == 2
            assert envs.call("tag") == (5, 5)
            envs.reset()
            envs.step([0, 0])
            assert envs.step([0, 0])[3].all()
    finally:
        del gymnasium.registry["Tagged-v0"]
    assert copy.deepcopy(point) is point
    with closing(pickle.loads(pickle.dumps(point))(num_envs=1, tag=6)) as envs:
        assert envs.call("tag") == (6,)


def make_tagged(tag: int) -> Any:
    env = CountingEnv()
    env.tag = tag
    return env
