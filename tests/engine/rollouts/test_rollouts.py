"""Rollouts: the learner reads the rows that the workers write, equal to the rows of a serial pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arena_views import address, is_view
from pool_envs import NestedEnv, begun, counting, hooked
from programs import kill
from rollout_envs import NumberInfoEnv, ending, fill
from vector_envs import synced

from remuda import ClosedError, FaultPolicy, Pool, Rollout


class Twin:
    """A serial pool that is stepped beside the tested pool and keeps its batches."""

    def __init__(self, pool: Pool, seed: int = 3) -> None:
        self._pool = pool
        self._batch = pool.reset(seed=seed)
        self.begin()

    def begin(self) -> None:
        self.obs, self.batches, self.actions = [self._batch.obs.copy()], list[Any](), list[Any]()

    def step(self, actions: Any) -> None:
        self._batch = self._pool.step(actions)
        self.obs.append(self._batch.obs.copy())
        self.batches.append(self._batch)
        self.actions.append(np.copy(actions))

    def stacked(self, name: str) -> Any:
        return np.array([getattr(batch, name) for batch in self.batches])


def assert_like(rollout: Rollout, twin: Twin) -> None:
    np.testing.assert_array_equal(rollout.obs, twin.obs)
    np.testing.assert_array_equal(rollout.actions, twin.actions)
    if rollout.final_obs is not None:
        for t, slot in np.argwhere(rollout.terminations | rollout.truncations).tolist():
            np.testing.assert_array_equal(rollout.final_obs[t, slot], twin.batches[t].final_obs[slot])
    for name in ("rewards", "terminations", "truncations"):
        np.testing.assert_array_equal(getattr(rollout, name), twin.stacked(name))


def actions_of(t: int, n: int) -> Any:
    return (np.arange(n) * 7 + t) % 5


# -- contents --------------------------------------------------------------------------------------------

FEATURES: list[dict[str, Any]] = [
    {"num_workers": 2},
    {"spares": 2},
    {"resets_ahead": True},
    {"faults": FaultPolicy(renew_every=2)},
    {"seeding": "per_episode"},
    {"max_concurrency": 1},
    {"num_workers": 2, "frames": 1},
    {"num_workers": 2, "vector_size": 3},
]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_a_rollout_has_the_rows_of_steps(feature: dict[str, Any], autoreset: Any) -> None:
    if autoreset == "same_step" and "resets_ahead" in feature:
        pytest.skip("the pool refuses the two")
    options = {"autoreset": autoreset, **feature}
    env_fns = ending([2, 3, 5, 7, 4, 6])
    if "vector_size" in feature:
        env_fns = synced(env_fns, 3, autoreset)
    backend: Any = "process" if autoreset == "next_step" else "thread"
    with (
        begun(env_fns, **options, backend=backend, seed=3) as pool,
        Pool(env_fns, **options, backend="serial") as serial,
    ):
        twin, n = Twin(serial), pool.num_envs
        before, starts = np.zeros(n, bool), np.ones(n, bool)  # the ends just before the rollout, and the next starts
        for steps in (11, 4, 15):
            rollout = pool.rollout(steps)
            for t, step in enumerate(rollout):
                np.testing.assert_array_equal(step.obs, twin.obs[-1])
                actions = actions_of(t, n)
                step.act(actions, value=actions / 2, pair=np.stack([actions, actions], 1))
                twin.step(actions)
            assert_like(rollout, twin)
            np.testing.assert_array_equal(rollout.columns["value"], rollout.actions / 2)
            np.testing.assert_array_equal(rollout.columns["pair"][..., 1], rollout.actions)
            assert not rollout.is_open
            assert_marks(rollout, autoreset, before)
            np.testing.assert_array_equal(rollout.episode_starts[0], starts)
            before = (rollout.terminations | rollout.truncations)[-1]
            starts = rollout.episode_starts[-1].copy()
            twin.begin()


def assert_marks(rollout: Rollout, autoreset: str, before: Any) -> None:
    """Checks the valid rows and the starts of episodes, which follow from the ends. `before`: of the step before."""
    dones = rollout.terminations | rollout.truncations
    if autoreset == "next_step":
        resets = np.concatenate([[before], dones[:-1]])
        np.testing.assert_array_equal(rollout.valid, ~resets)
        np.testing.assert_array_equal(rollout.episode_starts[1:], resets)
        assert rollout.final_obs is None
    else:
        assert rollout.valid.all()
        np.testing.assert_array_equal(rollout.episode_starts[1:], dones)
    assert (rollout.obs[rollout.episode_starts][:, 2] == 0).all()


def test_nested_spaces_give_nested_arrays_of_the_arena() -> None:
    with begun([NestedEnv] * 3, num_workers=2, autoreset="same_step") as pool:
        rollout = pool.rollout(6)
        actions = {"push": np.ones((3, 2)), "keys": (np.zeros(3, int), np.ones((3, 2), int))}
        seen = []
        for step in rollout:
            seen.append(step.obs)
            step.act(actions)
        for arrays in (rollout.obs, rollout.final_obs, rollout.actions):
            assert set(arrays) == set(seen[0] if arrays is not rollout.actions else actions)
        assert all(array.flags.c_contiguous and is_view(array) for array in rollout._arrays())
        np.testing.assert_array_equal(rollout.actions["keys"][1], np.ones((6, 3, 2), int))


def test_a_rollout_copies_no_array() -> None:
    """The policy and the learner read the same memory, in which the frames are contiguous."""
    with begun(counting(4), num_workers=2) as pool:
        rollout = pool.rollout(5)
        for t, step in enumerate(rollout):
            assert address(step.obs) == address(rollout.obs[t])
            step.act(np.zeros(4, int))
        frame = rollout.obs[0].nbytes
        assert [address(rollout.obs[t]) - address(rollout.obs) for t in range(6)] == [t * frame for t in range(6)]
        for array in (rollout.obs, rollout.actions, rollout.rewards, rollout.terminations, rollout.truncations):
            assert array.flags.c_contiguous and not array.flags.owndata and is_view(array)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_numbers_in_infos_are_arrays_over_steps_and_envs(autoreset: Any) -> None:
    with (
        begun([NumberInfoEnv] * 3, num_workers=1, autoreset=autoreset, seed=3) as pool,
        Pool([NumberInfoEnv] * 3, backend="serial", autoreset=autoreset) as serial,
    ):
        twin = Twin(serial)
        for _ in range(2):  # the first info of each key precedes its column
            rollout = pool.rollout(12)
            for t, step in enumerate(rollout):
                step.act(actions_of(t, 3))
                twin.step(actions_of(t, 3))
            infos = rollout.infos
            assert "word" not in infos
            for t, batch in enumerate(twin.batches):
                stacked = batch.infos.stack()
                if "last" not in stacked:
                    assert not infos["_last"][t].any()
                    continue
                np.testing.assert_array_equal(infos["_last"][t], stacked["_last"])
                np.testing.assert_array_equal(infos["last"][t], stacked["last"])
                if "even" in stacked:
                    np.testing.assert_array_equal(infos["even"]["steps"][t], stacked["even"]["steps"])
                    np.testing.assert_array_equal(infos["even"]["pair"][t], stacked["even"]["pair"])
            assert infos["even"]["pair"].shape == (12, 3, 2)
            twin.begin()


def test_a_number_without_a_column_does_not_hide_other_numbers() -> None:
    def step(env: Any, _: Any) -> Any:
        """Returns two numbers in the info, but in step 8 one of them alone, with another type."""
        return env.observe(), 0.0, False, False, {"a": 1} if env.total_steps == 8 else {"a": 1.0, "b": 2.0}

    with begun(hooked(1, (0,), step=step), backend="serial", seed=0) as pool:
        for _ in range(2):  # the keys have columns in the second rollout
            rollout = fill(pool.rollout(6), 0)
        assert rollout.infos["_a"].all()
        assert rollout.infos["_b"][:, 0].tolist() == [True, False, True, True, True, True]


# -- ends ------------------------------------------------------------------------------------------------


def test_a_rollout_that_a_close_or_a_reset_ends_has_the_filled_rows() -> None:
    with begun(counting(3), num_workers=1) as pool:
        fill(pool.rollout(5), 4)  # fills the memory that the next rollout reuses
        rollout = pool.rollout(5)
        for t, step in enumerate(rollout):
            step.act([2, 2, 2])
            if t == 2:
                break
        rollout.close()
        rollout.close()
        assert rollout.valid.tolist() == [[True] * 3] * 3 + [[False] * 3] * 2
        assert rollout.rewards.tolist() == [[2.0] * 3] * 3 + [[0.0] * 3] * 2
        assert not rollout.episode_starts[4:].any()
        assert (pool.step([1, 1, 1]).obs[:, 2] == 9).all()
        assert rollout.rewards[3].tolist() == [0.0] * 3  # later steps do not write to a closed rollout
        ended = pool.rollout(5)
        pool.step([1, 1, 1])
        pool.reset()
        pool.step([1, 1, 1])
        assert ended.valid.tolist() == [[True] * 3] + [[False] * 3] * 4


def test_closing_the_pool_ends_a_rollout() -> None:
    with begun(counting(3), num_workers=1) as pool:
        rollout = pool.rollout(5)
        turns = iter(rollout)
        next(turns).act([1, 1, 1])
    with pytest.raises(ClosedError, match="closed"):
        next(turns)
    rollout.close()
    assert rollout.obs.shape == (6, 3, 4)


# -- parts and partial batches -----------------------------------------------------------------------------


def test_turns_of_parts_alternate_and_turns_of_partial_batches_have_the_row_of_each_env() -> None:
    """What the rows contain is tested in the tests of `collect`, which fills rollouts in each of these ways."""
    with begun(ending([2, 3, 4, 50, 60, 70]), num_workers=3) as pool:
        rollout = pool.rollout(9, parts=2)
        turns = []
        for step in rollout:
            turns.append(step.env_ids.tolist())
            step.act(step.env_ids % 5)
        assert len(turns) == 18 and turns[0] == turns[2] != turns[1]
        assert rollout.obs.flags.c_contiguous and is_view(rollout.obs)
        assert len(pool.split(1)[0].step([1] * 6)) == 6
        for min_envs in (1, 3, 6):
            rollout = pool.rollout(8)
            for step in rollout.partial(min_envs):
                np.testing.assert_array_equal(step.obs[:, 0], step.env_ids)
                step.act(step.env_ids % 5, clock=step.rows[0])
            np.testing.assert_array_equal(rollout.columns["clock"], np.arange(8)[:, None].repeat(6, 1))


# -- faults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_a_lost_env_is_truncated_and_restarted(autoreset: Any) -> None:
    with begun(ending([50] * 4), num_workers=2, faults="restart", autoreset=autoreset) as pool:
        rollout = pool.rollout(12)
        for t, step in enumerate(rollout):
            if t == 4:
                kill(pool, 1)
            step.act(np.ones(4, int))
        cut = np.argwhere(rollout.truncations[:, 2:])
        assert {slot for _, slot in cut.tolist()} == {0, 1}
        assert not rollout.truncations[:, :2].any() and rollout.valid[:, :2].all()
        for (t, slot), fault in rollout.faults.items():
            assert rollout.truncations[t, slot] and rollout.rewards[t, slot] == 0.0
            assert fault.env_id == slot
            after = t + 1 if autoreset == "same_step" else t + 2
            assert rollout.episode_starts[after, slot]
            assert rollout.obs[after, slot, 2] == 0  # a new episode
        assert len(rollout.faults) == 2
        assert (rollout.rewards[rollout.valid & ~rollout.truncations] == 1.0).all()


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_an_env_that_was_lost_between_rollouts_begins_a_new_episode(autoreset: Any) -> None:
    with begun(ending([50] * 4), num_workers=2, faults="restart", autoreset=autoreset) as pool:
        fill(pool.rollout(3))
        kill(pool, 1)
        rollout = fill(pool.rollout(5))
        assert not (rollout.terminations | rollout.truncations).any()
        assert [(fault.env_id, fault.kind, fault.where.step) for fault in rollout.lost] == [
            (2, "death", 3),
            (3, "death", 3),
        ]
        assert rollout.faults == {} and fill(pool.rollout(2)).lost == ()
        assert rollout.obs[-1, :2, 2].tolist() == [8, 8]
        if autoreset == "next_step":
            assert rollout.valid[0].tolist() == [True, True, False, False]
            assert rollout.episode_starts[1].tolist() == [False, False, True, True]
            assert rollout.obs[-1, 2:, 2].tolist() == [4, 4]
        else:
            assert rollout.episode_starts[0].tolist() == [False, False, True, True]
            assert rollout.obs[-1, 2:, 2].tolist() == [5, 5]
