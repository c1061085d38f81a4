"""Rewards that are vectors: a column of the shape that the envs' `reward_space` declares."""

from __future__ import annotations

from functools import partial
from typing import Any

import accidents
import numpy as np
import pytest
from accidents import once
from gymnasium import spaces
from pool_envs import begun
from replays import assert_reproduced, recording, replay
from vector_reward_envs import NumbersInRows, Returning, Sum, TwoGoals, TwoGoalsVector

import remuda
from remuda import EnvError, InvalidEnvError, Pool, WorkerDiedError

BACKENDS: Any = pytest.mark.parametrize("backend", ["process", "thread", "serial"])


@BACKENDS
def test_a_batch_has_a_row_of_rewards_for_each_env(backend: Any) -> None:
    with Pool([TwoGoals] * 3, num_workers=2, backend=backend) as pool:
        assert pool.reset().rewards.tolist() == [[0, 0]] * 3
        batch = pool.step([1, 2, 3])
        assert batch.rewards.dtype == np.float64
        assert batch.rewards.tolist() == [[1, -1], [1, -2], [1, -3]]
        assert pool.step([4, 4], [0, 2]).rewards.tolist() == [[2, -4]] * 2


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "background"])
def test_the_end_of_an_episode_has_its_reward_and_a_new_one_begins_with_zeros(autoreset: Any) -> None:
    with begun([TwoGoals] * 2, num_workers=1, autoreset=autoreset) as pool:
        rewards = [pool.step([1, 2]).rewards.tolist() for _ in range(3)]
        after = pool.recv() if autoreset == "background" else pool.step([1, 2])
        assert rewards[2] == [[3, -1], [3, -2]]
        assert pool.stats().envs[0].returns == (1 + 2 + 3 - 3,)
        assert after.rewards.tolist() == ([[1, -1], [1, -2]] if autoreset == "same_step" else [[0, 0]] * 2)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "background", "disabled"])
def test_the_row_of_a_fault_has_a_vector_of_zeros(tmp_path: Any, autoreset: Any) -> None:
    kill = partial(TwoGoals, once(tmp_path / "killed", accidents.kill_myself))
    with begun([kill, TwoGoals], num_workers=2, faults="restart", autoreset=autoreset) as pool:
        batch = pool.step([1, 2])
        assert batch.infos[0]["fault"] if autoreset != "same_step" else batch.infos[0]["final_info"]["fault"]
        assert batch.rewards.tolist() == [[0, 0], [1, -2]]


def test_a_crash_is_replayed(tmp_path: Any) -> None:
    with recording([partial(TwoGoals, accidents.kill_myself)], tmp_path, num_workers=1) as pool:
        pool.reset()
        with pytest.raises(WorkerDiedError) as raised:
            pool.step([1])
    assert_reproduced(replay(raised.value.record, "--trust"))


def test_a_rollout_has_a_row_of_rewards_for_each_step_and_env() -> None:
    with begun([TwoGoals] * 2, num_workers=2) as pool:
        rollout = pool.rollout(4)
        for step in rollout:
            step.act([1, 2])
        assert rollout.rewards.tolist() == [[[t, -1], [t, -2]] for t in (1, 2, 3)] + [[[0, 0]] * 2]
        assert rollout.to("cpu").rewards.shape == (4, 2, 2)
        with pytest.raises(ValueError, match=r"expected rewards that are numbers, got vectors, \(4, 2, 2\)"):
            rollout.gae(np.zeros((5, 2)))
        rollout.rewards = rollout.rewards @ np.array([1.0, 0.0])
        advantages, _ = rollout.gae(np.zeros((5, 2)), gamma=1, lam=0)
        assert advantages[:, 0].tolist() == [1, 2, 3, 0]


def test_rows_that_a_rollout_did_not_fill_are_zeros() -> None:
    with begun([TwoGoals] * 2, num_workers=1) as pool:
        for _ in range(2):  # the second one has the memory of the first
            rollout = pool.rollout(3)
            for _, step in zip(range(2), rollout, strict=False):
                step.act([3, 3])
            rollout.close()
            assert rollout.rewards[2].tolist() == [[0, 0]] * 2
            del rollout, step


def test_evaluation_has_the_return_of_each_goal() -> None:
    evaluation = remuda.evaluate(lambda obs: np.full(2, 2), [TwoGoals] * 2, episodes=3, num_workers=None)
    assert evaluation.returns.tolist() == [[6, -6]] * 3
    assert np.array_equal(evaluation.mean, [6, -6])
    assert "mean return [6 -6] (95 %: [6 -6] to [6 -6])" in repr(evaluation)


@BACKENDS
def test_vector_envs_have_vectors_as_rewards(backend: Any) -> None:
    with Pool([partial(TwoGoalsVector, 2)] * 2, vector_size=2, num_workers=2, backend=backend) as pool:
        assert pool.reset().rewards.tolist() == [[0, 0]] * 4
        assert pool.step([1, 2, 3, 4]).rewards.tolist() == [[1, -1], [2, -2], [3, -3], [4, -4]]
        assert [one.returns for one in pool.stats().envs] == [()] * 4
    with begun([partial(NumbersInRows, 2)], vector_size=2, num_workers=1, backend=backend) as pool:
        assert pool.step([1, 2]).rewards.tolist() == [1, 2]


# -- which shape -----------------------------------------------------------------------------------------


TWO = TwoGoals.reward_space


@pytest.mark.parametrize(
    ("env_fn", "rewards"),
    [
        *((partial(Returning, 0.5 * one), [0.5]) for one in (np.ones(1), np.ones(1, np.float32), np.float32(1), 1)),
        (partial(Returning, np.array(0.5)), [0.5]),
        (partial(Returning, np.array([0.5]), spaces.Box(0, 1, (1,))), [[0.5]]),
        *((partial(Returning, two, TWO), [[1, 2]]) for two in ([1, 2], (1.0, 2.0), np.array([1, 2]))),
        (partial(Returning, np.array([1, 9, 2])[::2], TWO), [[1, 2]]),
        (lambda: Sum(TwoGoals()), [-2]),  # a wrapper that makes numbers ends the search for a space
    ],
)
def test_rewards_of_a_column_have_the_shape_of_the_space(env_fn: Any, rewards: Any) -> None:
    with Pool([env_fn], num_workers=1) as pool:
        assert pool.reset().rewards.tolist() == np.zeros_like(rewards).tolist()
        assert pool.step([3]).rewards.tolist() == rewards


@pytest.mark.parametrize(
    ("reward", "space", "message"),
    [
        *(
            (reward, TWO, r"a reward of shape \(2,\), like the env's `reward_space`, got")
            for reward in (np.zeros(3), np.zeros((2, 1)), "ab", None, np.array([1j, 2]))
        ),
        (0.5, TWO, r".*, got 0.5; a wrapper that makes numbers .* needs a `reward_space` of shape"),
        (np.zeros(2), None, "a number as the reward, or a `reward_space` of the env for vectors"),
    ],
)
def test_a_reward_unlike_the_space_is_refused(reward: Any, space: Any, message: str) -> None:
    env_fn = partial(Returning, reward, space)
    with begun([env_fn], num_workers=1) as pool, pytest.raises(EnvError, match=f"expected {message}"):
        pool.step([0])


def test_envs_must_agree_on_a_space_with_one_axis() -> None:
    with pytest.raises(InvalidEnvError, match=r"rewards of the shape \(2,\) from all envs, as for env 0, got \(\)"):
        Pool([TwoGoals, partial(Returning, 0.0)], num_workers=1)
    with Pool([TwoGoals] * 2, num_workers=1) as pool, pytest.raises(InvalidEnvError, match="as for the pool, got"):
        pool.replace([1], [partial(Returning, 0.0)])
    with pytest.raises(InvalidEnvError, match=r"expected a reward_space of shape \(\) or \(k,\)"):
        Pool([partial(Returning, 0.0, spaces.Box(0, 1, (2, 2)))], num_workers=1)
