"""Parts of a split vector env are vector envs, and their envs return the same as without the split."""

from __future__ import annotations

import gc
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers
from gymnasium_face_envs import EchoEnv, FaultyEnv, Gate, SpaceEnv, assert_identical, faulty, gated
from pairs import pairwise

import remuda
from remuda import StateError
from remuda.gymnasium import AsyncVectorEnv

NESTED = spaces.Dict(image=spaces.Box(0, 255, (4, 4), np.uint8), word=spaces.Text(8))
SEED = 3


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def nested() -> Any:
    return SpaceEnv(NESTED)


def serial_twin(envs: AsyncVectorEnv, half: AsyncVectorEnv) -> VectorEnv[Any, Any, Any]:
    """Returns Gymnasium's own vector env with the envs of `half`."""
    return SyncVectorEnv(half.env_fns, autoreset_mode=envs.autoreset_mode)


@pairwise(make=[cartpole, nested], mode=AutoresetMode, num_workers__parts=[(1, 2), (2, 2), (None, 3)])
def test_parts_stepped_in_turn_equal_serial_vector_envs(
    make: Any, mode: AutoresetMode, num_workers: int | None, parts: int
) -> None:
    envs = AsyncVectorEnv([make] * 7, autoreset_mode=mode, num_workers=num_workers, shared_memory=False)
    with closing(envs):
        halves = envs.split(parts)
        twins = [serial_twin(envs, half) for half in halves]
        for half, twin in zip(halves, twins, strict=True):
            seeds = [SEED + env_id for env_id in half.env_ids.tolist()]
            assert_identical(half.reset(seed=SEED), twin.reset(seed=seeds), "reset")
            half.action_space.seed(7)
            twin.action_space.seed(7)
            half.step_async(half.action_space.sample())
        for i in range(60):
            for half, twin in zip(halves, twins, strict=True):
                step = half.step_wait()
                assert_identical(step, twin.step(twin.action_space.sample()), f"step {i}")
                done = step[2] | step[3]
                if mode is AutoresetMode.DISABLED and done.any():
                    reset = {"reset_mask": done}
                    assert_identical(half.reset(options=reset), twin.reset(options=dict(reset)), f"reset at {i}")
                half.step_async(half.action_space.sample())


def test_envs_of_a_generator_can_be_split() -> None:
    with closing(AsyncVectorEnv(cartpole for _ in range(4))) as envs:
        assert [half.env_fns for half in envs.split()] == [[cartpole] * 2] * 2


@pytest.mark.parametrize("mode", ["same", "different"])
def test_a_part_has_the_attributes_of_gymnasiums_vector_env(mode: str) -> None:
    kwargs = {"max_episode_steps": 20}
    with closing(remuda.make_vec("CartPole-v1", 6, num_workers=2, observation_mode=mode, **kwargs)) as envs:  # type: ignore[arg-type]
        halves = envs.split()
        assert sorted(env_id for half in halves for env_id in half.env_ids) == list(range(6))
        for half in halves:
            assert isinstance(half, VectorEnv)
            twin = SyncVectorEnv(half.env_fns, observation_mode=mode)
            for name in (
                "num_envs",
                "observation_space",
                "action_space",
                "single_observation_space",
                "single_action_space",
                "metadata",
                "render_mode",
            ):
                assert getattr(half, name) == getattr(twin, name), name
            assert half.spec is not None
            assert half.spec.kwargs["num_envs"] == 3
            obs, _ = half.reset(seed=0)
            assert obs in half.observation_space
            assert half.observations is obs


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.RecordEpisodeStatistics,
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        wrappers.DictInfoToList,
        lambda envs: wrappers.ClipReward(wrappers.FlattenObservation(envs), 0.0, 0.5),
    ],
)
def test_gymnasiums_wrappers_accept_a_part(wrap: Any) -> None:
    with closing(AsyncVectorEnv([cartpole] * 4, num_workers=2)) as envs:
        for half in envs.split():
            ours, reference = wrap(half), wrap(serial_twin(envs, half))
            seeds = [SEED + env_id for env_id in half.env_ids.tolist()]
            assert_identical(ours.reset(seed=SEED), reference.reset(seed=seeds))
            for _ in range(30):
                our_step, their_step = (one.step(np.ones(2, np.int64)) for one in (ours, reference))
                for step in (our_step, their_step):
                    if isinstance(step[4], dict):
                        step[4].get("episode", {}).pop("t", None)  # the duration of the episode
                assert_identical(our_step, their_step)


def test_calls_of_a_part_reach_its_envs_alone() -> None:
    with closing(AsyncVectorEnv([EchoEnv] * 4, num_workers=2)) as envs:
        first, second = envs.split()
        for half in (first, second):
            half.reset()
        first.set_attr("steps", [10, 20])
        second.set_attr("steps", 30)
        assert first.get_attr("steps") == (10, 20)
        assert envs.get_attr("steps") == tuple({0: 10, 2: 20}.get(env_id, 30) for env_id in range(4))
        second.step_async(np.zeros(2, np.int64))  # a call on the first part does not wait for the second part
        assert first.call("add", 1, right=2) == ("3", "3")
        assert second.step_wait()[1].tolist() == [31.0, 31.0]
        assert [worker.env_ids for worker in first.processes] == [(0, 1), (2, 3)]


def test_a_part_steps_while_another_is_busy(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    with closing(AsyncVectorEnv(gated([gate, None], "step"))) as envs:
        busy, quick = envs.split()
        for half in (busy, quick):
            half.reset()
        busy.step_async([1])
        assert [quick.step([1])[1].tolist() for _ in range(3)] == [[1.0], [2.0], [3.0]]
        gate.open()
        assert busy.step_wait()[1].tolist() == [1.0]


def test_a_part_takes_one_seed_for_each_of_its_envs() -> None:
    with closing(AsyncVectorEnv([cartpole] * 4, num_workers=1)) as envs:
        whole, _ = envs.reset(seed=[5, 6, 7, 8])
        _, second = envs.split()
        assert second.reset(seed=[7, 8])[0].tobytes() == whole[2:].tobytes()
        with pytest.raises(ValueError, match="num_envs=2"):
            second.reset(seed=[5, 6, 7, 8])


# -- refused calls -----------------------------------------------------------------------------------------


def test_a_split_vector_env_refuses_steps_and_resets() -> None:
    with closing(AsyncVectorEnv([EchoEnv] * 4)) as envs:
        envs.reset()
        halves = envs.split()
        with pytest.raises(StateError, match="split"):
            envs.step(np.zeros(4, np.int64))
        with pytest.raises(StateError, match="split"):
            envs.reset()
        assert [half.step(np.zeros(2, np.int64))[1].tolist() for half in halves] == [[1.0, 1.0]] * 2
        assert envs.split(1) == (envs,)
        assert envs.step(np.zeros(4, np.int64))[1].tolist() == [2.0] * 4
        with pytest.raises(StateError, match="split"):
            halves[0].step(np.zeros(2, np.int64))


def test_split_is_refused_while_a_call_is_pending() -> None:
    with closing(AsyncVectorEnv([EchoEnv] * 4)) as envs:
        envs.reset_async()
        with pytest.raises(AlreadyPendingCallError):
            envs.split()
        envs.reset_wait()
        first, _ = envs.split()
        first.step_async(np.zeros(2, np.int64))
        with pytest.raises(AlreadyPendingCallError):
            envs.split(3)
        assert first.step_wait()[1].tolist() == [1.0, 1.0]
        assert len(envs.split(3)) == 3


@pytest.mark.parametrize("parts", [0, 5, True, "2"])
def test_invalid_numbers_of_parts_are_refused(parts: Any) -> None:
    with closing(AsyncVectorEnv([EchoEnv] * 4)) as envs:
        with pytest.raises(ValueError, match="from 1 to 4"):
            envs.split(parts)
        envs.reset()
        assert envs.step(np.zeros(4, np.int64))[1].tolist() == [1.0] * 4
        with pytest.raises(ValueError, match=r"whole.split"):
            envs.split()[0].split(2)


def test_steps_in_flight_of_a_deleted_part_are_dropped() -> None:
    with closing(AsyncVectorEnv([EchoEnv] * 4)) as envs:
        for half in envs.split():
            half.reset()
            half.step_async(np.zeros(2, np.int64))
        del half
        gc.collect()
        envs.split(1)
        assert envs.step(np.zeros(4, np.int64))[1].tolist() == [2.0] * 4


# -- faults and closing ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")
def test_an_exception_is_raised_by_the_part_of_its_env() -> None:
    with closing(AsyncVectorEnv(faulty("step", "plain", 4, which=(3,)), num_workers=2)) as envs:
        first, second = envs.split()
        for half in (first, second):
            half.reset()
        for half in (first, second):
            half.step_async(np.zeros(2, np.int64))
        with pytest.raises(ValueError, match="100% wrong"):
            second.step_wait()
        assert first.step_wait()[1].tolist() == [1.0, 1.0]
        second.reset()
        for half in (second, first):  # the failing part starts first, and the other part is received first
            half.step_async(np.zeros(2, np.int64))
        assert first.step_wait()[1].tolist() == [2.0, 2.0]
        with pytest.raises(ValueError, match="100% wrong"):
            second.step_wait()


@pytest.mark.parametrize("num_workers", [2, 4])
def test_a_killed_worker_cuts_off_the_env_of_its_part(num_workers: int) -> None:
    envs = AsyncVectorEnv(faulty("step", "killed", 4, which=(3,)), num_workers=num_workers, faults="restart")
    with closing(envs):
        halves = envs.split()
        cut_off = {}
        for half in halves:
            half.reset()
            half.step_async(np.zeros(2, np.int64))
        for half in halves:
            truncated = half.step_wait()[3].tolist()
            cut_off.update(zip(half.env_ids.tolist(), truncated, strict=True))
        assert [cut_off[env_id] for env_id in (0, 1, 3)] == [False, False, True]


def test_closing_the_vector_env_closes_its_parts() -> None:
    envs = AsyncVectorEnv([EchoEnv] * 4)
    first, second = envs.split()
    obs, _ = first.reset()
    second.reset_async()
    workers = envs.processes
    envs.close()
    assert not any(worker.is_alive() for worker in workers)
    for half in (first, second):
        with pytest.raises(ClosedEnvironmentError):
            half.step(np.zeros(2, np.int64))
        half.close()
    assert obs.tolist() == [[100], [100]]
    with pytest.raises(ClosedEnvironmentError):
        envs.split()


def test_closing_a_part_leaves_the_others() -> None:
    with closing(AsyncVectorEnv([EchoEnv] * 4)) as envs:
        first, second = envs.split()
        for half in (first, second):
            half.reset()
        first.close()
        with pytest.raises(ClosedEnvironmentError):
            first.step(np.zeros(2, np.int64))
        assert second.step(np.zeros(2, np.int64))[1].tolist() == [1.0, 1.0]
        envs.split(1)
        assert envs.reset()[0].tolist() == [[200]] * 4


@pytest.mark.filterwarnings("ignore:.*ERROR:UserWarning")
def test_closing_a_part_waits_for_its_pending_call() -> None:
    with closing(AsyncVectorEnv([lambda: FaultyEnv("step"), EchoEnv])) as envs:
        first, second = envs.split()
        for half in (first, second):
            half.reset()
            half.step_async([0])
        with pytest.warns(UserWarning, match="pending call to `step`"):
            second.close()
        with pytest.warns(UserWarning, match="pending call"), pytest.raises(ValueError, match="100% wrong"):
            first.close()
        assert first.closed
        envs.split(1)


def test_a_part_keeps_its_vector_env_open() -> None:
    envs = AsyncVectorEnv([EchoEnv] * 2)
    workers = envs.processes
    first, second = envs.split()
    del envs
    gc.collect()
    assert first.reset()[0].tolist() == [[100]]
    del first, second
    gc.collect()
    assert not any(worker.is_alive() for worker in workers)
