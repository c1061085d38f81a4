"""Arguments of the constructor and attributes of the Gymnasium face."""

from __future__ import annotations

import functools
import multiprocessing
import os
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium_face_envs import ClockedEnv, EchoEnv, SpaceEnv, assert_identical

from remuda.gymnasium import AsyncVectorEnv, LazyInfos


def test_attributes_are_those_of_gymnasium() -> None:
    fns = [EchoEnv, EchoEnv]
    envs = AsyncVectorEnv(fns, True, False, "spawn", False, None, "same", "SameStep", 1)
    assert isinstance(envs, VectorEnv)
    assert envs.env_fns is fns
    assert (envs.shared_memory, envs.copy, envs.context, envs.daemon, envs.worker) == (
        True,
        False,
        "spawn",
        False,
        None,
    )
    assert (envs.observation_mode, envs.autoreset_mode, envs.max_concurrency) == (
        "same",
        AutoresetMode.SAME_STEP,
        1,
    )
    assert (envs.num_envs, envs.closed, envs.spec, envs.render_mode) == (2, False, None, None)
    assert envs.unwrapped is envs
    assert repr(envs) == "AsyncVectorEnv(num_envs=2)"
    envs.reset()
    envs.step([0, 0])
    envs.close()
    assert envs.closed


def test_metadata_is_a_copy_with_the_autoreset_mode() -> None:
    envs = AsyncVectorEnv([lambda: SpaceEnv(gymnasium.spaces.Discrete(2))], autoreset_mode="Disabled")
    assert envs.metadata == {**SpaceEnv.metadata, "autoreset_mode": AutoresetMode.DISABLED}
    assert "autoreset_mode" not in SpaceEnv.metadata
    assert envs.render_mode == "rgb_array"
    envs.close()


def test_each_env_has_its_own_process() -> None:
    envs = AsyncVectorEnv([EchoEnv] * 3)
    assert envs.call("pid") == tuple(process.pid for process in envs.processes)
    assert os.getpid() not in envs.call("pid")
    assert [process.name for process in envs.processes] == [f"Worker<AsyncVectorEnv>-{i}" for i in range(3)]
    assert all(process.is_alive() and process.exitcode is None for process in envs.processes)
    envs.close()
    assert not any(process.is_alive() for process in envs.processes)
    assert [process.exitcode for process in envs.processes] == [0, 0, 0]


@pytest.mark.parametrize(("num_workers", "hosted"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (4, [1] * 4)])
def test_num_workers(num_workers: int, hosted: list[int]) -> None:
    envs = AsyncVectorEnv([EchoEnv] * 4, num_workers=num_workers)
    assert sorted((len(process.env_ids) for process in envs.processes), reverse=True) == hosted
    assert len(set(envs.call("pid"))) == num_workers
    envs.close()


@pytest.mark.parametrize("context", [None, *multiprocessing.get_all_start_methods()])
def test_context(context: str | None) -> None:
    envs = AsyncVectorEnv([EchoEnv] * 2, context=context)
    envs.reset()
    assert envs.step([0, 1])[0].tolist() == [[101], [101]]
    envs.close()


def test_an_unknown_context_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        AsyncVectorEnv([EchoEnv], context="nonsense")


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_backend(backend: Any) -> None:
    envs = AsyncVectorEnv([EchoEnv] * 2, backend=backend)
    assert (os.getpid() in envs.call("pid")) == (backend != "process")
    envs.close()


@pytest.mark.parametrize("limit", ["2", 2.0, 0, -1, np.int64(0)])
def test_a_bad_max_concurrency_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="`max_concurrency` must be"):
        AsyncVectorEnv([EchoEnv], max_concurrency=limit)


@pytest.mark.parametrize("limit", [1, np.int64(2), 9])
def test_max_concurrency_limits_the_steps_under_way(limit: Any) -> None:
    envs = AsyncVectorEnv([ClockedEnv] * 4, max_concurrency=limit)
    assert len(envs.processes) == 4
    envs.reset()
    for i in range(1, 20):
        assert envs.step([0, 1, 2, 3])[0].tolist() == [[100 + i]] * 4
        turns = envs.get_attr("clock")
        for begin, _ in turns:  # counts the steps under way when a step begins
            assert sum(start <= begin < end for start, end in turns) <= limit
    envs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_lazy_infos_equal_plain_infos(mode: str) -> None:
    fns = [lambda: SpaceEnv(gymnasium.spaces.Discrete(9))] * 3
    lazy, plain = (AsyncVectorEnv(fns, autoreset_mode=mode, lazy_infos=lazily) for lazily in (True, False))
    first = lazy.reset(seed=1)[1], plain.reset(seed=1)[1]
    assert (type(first[0]), type(first[1])) == (LazyInfos, dict)
    kept = [first]
    for _ in range(30):
        kept.append((lazy.step([0, 0, 0])[4], plain.step([0, 0, 0])[4]))
    lazy.close()
    plain.close()
    for ours, expected in kept:  # lazy infos keep the data that they are stacked from
        assert_identical(dict(ours), expected)


def test_a_bad_autoreset_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="next_step"):
        AsyncVectorEnv([EchoEnv], autoreset_mode="next_step")


def test_a_custom_worker_with_a_wrong_signature_is_refused() -> None:
    def worker(index: int, env_fn: Any, pipe: Any) -> None: ...

    with pytest.raises(ValueError, match=r"A custom `worker` must accept 8 arguments\. Got the signature"):
        AsyncVectorEnv([EchoEnv], worker=worker)


def test_a_custom_worker_is_refused_with_an_alternative() -> None:
    def worker(*args: Any) -> None: ...

    with pytest.raises(NotImplementedError, match=r"gymnasium\.Wrapper.*autoreset_mode"):
        AsyncVectorEnv([EchoEnv], worker=worker)


def test_bad_arguments_are_refused_before_any_worker_starts() -> None:
    def explode() -> gymnasium.Env[Any, Any]:
        raise AssertionError("a worker has started")

    for options in (
        {"max_concurrency": 0},
        {"worker": lambda *args: None},
        {"observation_mode": "nonsense"},
        {"autoreset_mode": "nonsense"},
    ):
        with pytest.raises((ValueError, NotImplementedError)):
            AsyncVectorEnv([explode], **options)  # type: ignore[arg-type]


def test_with_per_episode_seeds_each_episode_has_its_derived_seed() -> None:
    def formula(seed: int, env_id: int, episode: int) -> int:
        return int(np.random.SeedSequence(seed, spawn_key=(env_id, episode)).generate_state(1)[0]) % 2**31

    envs = AsyncVectorEnv(
        [lambda: EchoEnv(length=2)] * 3, seeding="per_episode", num_workers=2, autoreset_mode="SameStep"
    )
    _, infos = envs.reset(seed=5)
    assert infos["episode_seed"].tolist() == [formula(5, i, 0) for i in range(3)]
    drawn = [envs.single_action_space.sample() for _ in range(20)]
    envs.step([0, 0, 0])
    _, _, _, _, infos = envs.step([0, 0, 0])
    assert infos["episode_seed"].tolist() == [formula(5, i, 1) for i in range(3)]
    assert "episode_seed" not in infos["final_info"]
    _, infos = envs.reset(seed=[1, None, 2], options={"reset_mask": np.array([True, True, False])})
    assert infos["episode_seed"].tolist() == [formula(1, 0, 0), formula(5, 1, 2), 0]
    assert infos["_episode_seed"].tolist() == [True, True, False]
    _, infos = envs.reset(seed=5, options={"reset_mask": np.array([True, False, True])})
    assert infos["episode_seed"].tolist() == [formula(5, 0, 0), 0, formula(5, 2, 0)]
    assert [envs.single_action_space.sample() for _ in range(20)] == drawn
    envs.close()


def test_a_subclass_is_named_in_repr_and_processes() -> None:
    class Mine(AsyncVectorEnv[Any, Any]):
        pass

    envs = Mine([EchoEnv])
    assert repr(envs) == "Mine(num_envs=1)"
    assert envs.processes[0].name == "Worker<Mine>-0"
    envs.close()


def test_spares_receive_the_attributes_set_on_all_envs() -> None:
    envs = AsyncVectorEnv([lambda: EchoEnv(length=1)] * 3, spares=1, autoreset_mode="SameStep")
    assert envs.num_envs == 2
    envs.reset()
    envs.set_attr("mark", 5)
    pids = envs.call("pid")
    assert envs.step([0, 0])[2].all()
    assert envs.call("pid") != pids
    assert envs.get_attr("mark") == (5, 5)
    envs.close()


def test_vector_envs_equal_one_large_vector_env() -> None:
    build = functools.partial(gymnasium.make_vec, "CartPole-v1", num_envs=2, vectorization_mode="sync")
    single = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    envs = AsyncVectorEnv([build] * 2, vector_size=2)
    assert (envs.num_envs, len(envs.processes)) == (4, 2)
    assert_identical(envs.reset(seed=3), single.reset(seed=3))
    for actions in ([0, 1, 0, 1], [1, 1, 0, 0]):
        assert_identical(envs.step(actions), single.step(np.array(actions)))
    with pytest.raises(ValueError, match="whole vector envs"):
        envs.reset(options={"reset_mask": np.array([True, False, False, False])})
    envs.reset(seed=3, options={"reset_mask": np.array([True, True, False, False])})
    envs.close()
    single.close()
