"""The objects that a worker accepts as vector envs, and their invalid results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from failing import MODES
from gymnasium.vector import SyncVectorEnv
from old_gymnasium import GYMNASIUM_MODES
from pairs import each
from pool_envs import CountingEnv, EnvFn, Info, assert_same, counting
from vector_envs import PlainVector, plain, synced

from remuda import EnvError, InvalidEnvError, Pool

BACKENDS = ("process", "thread", "serial")


# -- vector envs that are not Gymnasium's ----------------------------------------------------------------


@each(backend=BACKENDS, mode=MODES)
def test_an_object_like_a_vector_env_is_accepted(mode: Any, backend: Any) -> None:
    """A vector env that reuses its arrays. Its infos have no masks, and its final observations are one batch."""
    with Pool(plain(2, 3, 2, mode), vector_size=3, autoreset=mode, backend=backend, num_workers=None) as pool:
        first = pool.reset()
        assert first.infos[4] == {"count": 0, "half": 0.0, "pair": pytest.approx([1, 0])}
        batch = [pool.step(np.arange(6)) for _ in range(2)][-1]
        assert mode == "same_step" or not batch._lazy.raw  # numeric infos with columns are not pickled
        assert first.obs[:, 0].tolist() == list(range(6))
        assert batch.terminations.tolist() == [True, False, False] * 2
        assert batch.rewards.tolist() == list(range(6))
        if mode == "same_step":
            assert batch.final_obs[[0, 3]].tolist() == [[0, 1, 2, 0], [3, 1, 2, 3]]
            assert batch.obs[[0, 3]].tolist() == [[0, 2, 0, -1], [3, 2, 0, -1]]
            assert_same(batch.infos[3]["final_obs"], np.array([3, 1, 2, 3]))
            assert batch.infos[3]["final_info"] == {}
            assert "final_obs" not in batch.infos[1]
        else:
            assert batch.obs[[0, 3]].tolist() == [[0, 1, 2, 0], [3, 1, 2, 3]]
        assert type(batch.infos[1]["count"]) is int
        assert type(batch.infos[1]["half"]) is float
        assert_same(batch.infos[1]["pair"], np.array([1, 2], np.float32))


def test_a_vector_env_may_keep_its_actions() -> None:
    def keep(env: Any, actions: Any) -> None:
        env.resets.append(actions)

    with Pool(plain(1, 2, step=keep), vector_size=2, num_workers=None) as pool:
        pool.reset()
        for i in range(3):
            pool.step([i, i + 10])
        assert_same(pool.get_attr("resets")[0][1:], [np.array([i, i + 10]) for i in range(3)])


def test_observations_of_another_dtype_are_cast() -> None:
    with Pool([lambda: _Wrong(obs=np.ones((2, 4), np.int32))], vector_size=2, backend="serial") as pool:
        pool.reset()
        assert_same(pool.step([0, 0]).obs, np.ones((2, 4), np.int64))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_atari_vector_envs(mode: Any) -> None:
    vector_env = pytest.importorskip("ale_py.vector_env", reason="ale_py has no vector env here")

    def build() -> Any:
        name = GYMNASIUM_MODES[mode]
        return vector_env.AtariVectorEnv("pong", 2, num_threads=1, max_num_frames_per_episode=40, autoreset_mode=name)

    reference = build()
    with Pool([build, build], vector_size=2, autoreset=mode, num_workers=None) as pool:
        batch, (obs, infos) = pool.reset(seed=[3, 4, 3, 4]), reference.reset(seed=3)
        for _ in range(25):
            for first in (0, 2):
                assert_same(batch.obs[first : first + 2], obs)
                assert [info["lives"] for info in batch.infos[first : first + 2]] == infos["lives"].tolist()
                if "final_obs" in infos:
                    assert batch.truncations[first : first + 2].all()
                    assert_same(batch.final_obs[first : first + 2], infos["final_obs"])
            actions = reference.action_space.sample()
            batch = pool.step(np.tile(actions, 2))
            obs, reward, _, truncated, infos = reference.step(actions)
            assert batch.rewards.tolist() == [*reward, *reward]
            assert batch.truncations.tolist() == [*truncated, *truncated]
            assert (batch.final_obs is None) == ("final_obs" not in infos)


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({"a": [1, 2]}, [{"a": 1}, {"a": 2}]),
        ({"a": ("x", None), "_a": np.array([False, True])}, [{}, {"a": None}]),
        ({"a": "all", "b": 7, "c": np.arange(3)}, [{"a": "all", "b": 7, "c": np.arange(3)}] * 2),
        ({"_a": np.array([5, 6])}, [{"_a": 5}, {"_a": 6}]),
        ({"a": np.array([1, 2]), "_a": np.array([3, 4])}, [{"a": 1}, {"a": 2}]),
        ({"a": {"b": np.array([1, 2]), "_b": np.array([True, False])}}, [{"a": {"b": 1}}, {"a": {}}]),
        ({"a": np.array(["x", "y"])}, [{"a": np.str_("x")}, {"a": np.str_("y")}]),
        ({3: np.array([1.5, 2.5])}, [{3: 1.5}, {3: 2.5}]),
    ],
)
def test_infos_of_a_vector_env_are_split(infos: Info, expected: list[Info]) -> None:
    with Pool([lambda: _Wrong(infos=infos)], vector_size=2, backend="serial") as pool:
        pool.reset()
        assert_same([dict(info) for info in pool.step([0, 0]).infos], expected)


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector_size": 0}, "expected vector_size to be an int from 1 up, or None, got 0"),
        ({"vector_size": True}, "got True"),
        ({"vector_size": "2"}, "got '2'"),
        ({"num_workers": 3}, r"from 1 to 2 \(the number of vector envs\), got 3"),
    ],
)
def test_invalid_sizes_of_vector_envs_and_too_many_workers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pool(plain(2, 2), **{"vector_size": 2, **options})


def _without_a_space() -> Any:
    env = PlainVector(2)
    env.single_action_space = 7  # type: ignore[assignment]
    return env


@each(
    backend=BACKENDS,
    size__env_fn__message=[
        (2, lambda: CountingEnv(), r"env_fns\[1\] to return a gymnasium.vector.VectorEnv .* omit vector_size"),
        (2, lambda: PlainVector(3), r"env_fns\[1\] .* of vector_size=2 envs, got one of 3"),
        (2, lambda: None, r"env_fns\[1\] .*, got None \(it has no reset, step, close, num_envs"),
        (2, lambda: PlainVector, r"env_fns\[1\] .*PlainVector.* \(it has no num_envs, single_observation_space"),
        (None, lambda: PlainVector(3), r"env_fns\[1\] to return a gymnasium.Env, .* pass vector_size=3"),
        (None, lambda: SyncVectorEnv(counting(3)), "pass vector_size=3"),
        (2, lambda: _without_a_space(), "whose single_action_space is a gymnasium.Space, got 7"),
    ],
)
def test_factories_must_return_vector_envs_of_the_right_size(
    size: int | None, env_fn: EnvFn, message: str, backend: Any
) -> None:
    good: EnvFn = CountingEnv if size is None else lambda: PlainVector(2)
    with pytest.raises(InvalidEnvError, match=message):
        Pool([good, env_fn], vector_size=size, backend=backend, num_workers=None)


@each(backend=BACKENDS, mode=MODES)
def test_the_autoreset_mode_of_a_vector_env_must_match(mode: Any, backend: Any) -> None:
    other = MODES[MODES.index(mode) - 1]
    fns = [*synced(counting(2), 2, mode), *synced(counting(2), 2, other)]
    with pytest.raises(ValueError, match=rf"autoreset='{mode}', got .* of env_fns\[1\]; pass autoreset='{other}'"):
        Pool(fns, vector_size=2, autoreset=mode, backend=backend, num_workers=None)


# -- what a vector env must not do -----------------------------------------------------------------------


class _Wrong(PlainVector):
    """A vector env that returns one wrong value from `step`."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(2)
        self.wrong = wrong

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, infos = super().step(actions)
        names = {"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated, "infos": infos}
        return tuple({**names, **self.wrong}.values())[: self.wrong.get("length", 5)]


WRONG: list[tuple[Info, str]] = [
    (
        {"obs": np.zeros((3, 4), np.int64)},
        r"expected an array of shape \(2, 4\) and dtype int64 at obs, got .*\(3, 4\)",
    ),
    ({"obs": np.full((2, 4), 0.5)}, "dtype int64 at obs, got .* dtype float64"),
    ({"reward": np.zeros(3)}, r"shape \(2,\) and dtype float64 at rewards"),
    ({"reward": None}, "at rewards, got NoneType: None"),
    ({"terminated": np.array([0, 2])}, "dtype bool at terminations"),
    ({"truncated": False}, "at truncations, got bool: False"),
    ({"infos": [{}, {}]}, "expected a dict as the infos, got"),
    ({"length": 4}, r"expected step\(\) to return \(observations, rewards, .*, got tuple of 4: \("),
    ({"infos": {"lock": np.array([None, (i for i in range(3))], object)}}, "that can be pickled"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_errors_of_invalid_results_of_vector_envs(wrong: Info, message: str) -> None:
    with Pool([lambda: _Wrong(**wrong)], vector_size=2, backend="serial", autoreset="same_step") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=message):
            pool.step([0, 0])


def test_same_step_autoreset_needs_final_obs() -> None:
    def forget(env: PlainVector, _: Any) -> Any:
        return env.obs, np.zeros(2), np.ones(2, bool), np.zeros(2, bool), {}

    with Pool(plain(1, 2, step=forget), vector_size=2, autoreset="same_step", num_workers=None) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="expected 'final_obs' in the infos"):
            pool.step([0, 0])
