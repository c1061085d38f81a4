from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium_face_envs import SpaceEnv
from gymnasium_originals import compare
from pool_envs import ColourSpace, CountingEnv

import remuda
from remuda.gymnasium import AsyncVectorEnv, make_vec


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
