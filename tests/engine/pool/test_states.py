"""States of envs: an env that is put into a state continues as the env of the state did."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from arena_views import leaves
from drawn import MINUTES
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from pool_envs import CountingEnv, Gate, assert_same, begun, counting, gated, levelled
from state_envs import CloningWalkEnv, EzEnv, Recent, SavingWalkEnv, SizedEnv, WalkEnv, WritingEnv, put, take

from remuda import Batch, EnvError, FaultPolicy, InvalidEnvError, Pool, StateError

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"  # Gymnasium 1.0 has Taxi-v3

FNS = (take, put)


def walks(num_envs: int, kind: Callable[[int], Any] = SavingWalkEnv, limit: int = 8) -> list[Any]:
    return [lambda tag=tag: TimeLimit(kind(tag), limit) for tag in range(num_envs)]


def rows(batch: Batch) -> list[Any]:
    """Returns the rows of a batch in the order of the env ids."""
    rows_ = []
    for i in np.argsort(batch.env_ids):
        flags = bool(batch.terminations[i]), bool(batch.truncations[i])
        rows_.append(
            (int(batch.env_ids[i]), batch.obs[i].copy(), float(batch.rewards[i]), *flags, dict(batch.infos[i]))
        )
    return rows_


def play(pool: Pool, steps: int, mode: str = "next_step") -> list[Any]:
    """Returns the rows of some steps and of the resets that follow them."""
    rows_ = []
    for i in range(steps):
        pool.send(np.full(pool.num_envs, i % 10))
        batch = pool.recv()
        rows_.append(rows(batch))
        over = np.flatnonzero(batch.terminations | batch.truncations).tolist()
        if over and mode == "disabled":
            rows_.append(rows(pool.reset(env_ids=over)))
        if pool.pending:  # envs that reset in the background
            rows_.append(rows(pool.recv()))
    return rows_


def assert_continues(pool: Pool, fns: Any = None, steps: int = 25, mode: str = "next_step") -> None:
    """Asserts that the rows after `set_state` equal the rows that followed `get_state`."""
    states = pool.get_state(state_fns=fns)
    first = play(pool, steps, mode)
    pool.set_state(states)
    assert_same(play(pool, steps, mode), first)


# -- continuing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled", "background"])
def test_an_env_continues_from_a_state(mode: Any) -> None:
    with begun(walks(4), num_workers=2, autoreset=mode, seed=1) as pool:
        for _ in range(3):
            assert_continues(pool, mode=mode)
            play(pool, 1, mode)


@pytest.mark.parametrize(
    ("kind", "fns", "method"),
    [
        (SavingWalkEnv, None, "get_state"),
        (CloningWalkEnv, None, "clone_state"),
        (WalkEnv, FNS, "state_fns"),
        # the states of wrappers, such as TimeLimit's number of steps, are restored after the reset
        (WalkEnv, (take, lambda env, state: (env.reset(), put(env, state))), "state_fns"),
        (WalkEnv, "attributes", "attributes"),
        (EzEnv, "attributes", "attributes"),
        (lambda tag: Recent(SavingWalkEnv(tag)), None, "get_state"),
        (lambda tag: Recent(WalkEnv(tag)), FNS, "state_fns"),
        (lambda tag: Recent(WalkEnv(tag)), "attributes", "attributes"),
    ],
)
def test_an_env_continues_from_a_state_of_each_method(kind: Any, fns: Any, method: str) -> None:
    with begun(walks(2, kind), num_workers=1, seed=2) as pool:
        play(pool, 3)
        assert {state.method for state in pool.get_state(state_fns=fns)} == {method}
        assert_continues(pool, fns)


def test_set_state_returns_the_observation_of_the_state() -> None:
    extras = {"place": lambda env: env.unwrapped.place}
    with begun(walks(3), backend="serial", extras=extras, seed=5) as pool:
        batch = pool.step([1, 1, 1])
        obs, states = batch.obs.copy(), pool.get_state([2, 0])
        play(pool, 2)
        back = pool.set_state(states, [2, 0])
        assert back.env_ids.tolist() == [2, 0]
        assert back.obs.tolist() == [obs[2].tolist(), obs[0].tolist()]
        assert back.extras["place"].tolist() == back.obs[:, 1].tolist()
        assert (back.rewards.tolist(), back.terminations.any(), back.truncations.any()) == ([0, 0], False, False)
        assert not back.has_infos
        pool.request_obs([0])
        assert pool.recv().obs.tolist() == [obs[0].tolist()]
        assert [(state.steps, state.is_over) for state in states] == [(1, False)] * 2


# -- other envs ----------------------------------------------------------------------------------------------


def test_one_state_can_be_copied_into_many_envs_and_envs_can_exchange_states() -> None:
    with begun(walks(4), num_workers=2, seed=0) as pool:
        before = pool.step([0, 2, 1, 1]).obs.copy()
        assert pool.fork_state([1, 0], [0, 1]).obs.tolist() == before[[1, 0]].tolist()
        assert pool.fork_state(1, 0).obs.tolist() == before[:1].tolist()
        play(pool, 2)
        batch = pool.fork_state(3, [0, 1, 2])
        assert batch.env_ids.tolist() == [0, 1, 2]
        pool.request_obs()
        assert pool.recv().obs[:, 1:].tolist() == [batch.obs[0, 1:].tolist()] * 4
        rows_ = play(pool, 20)
        for envs in rows_:  # equal apart from the tags
            assert len({(*obs[1:].tolist(), *numbers) for _, obs, *numbers, _ in envs}) == 1


@pytest.mark.parametrize("lazy", [False, True])
def test_a_state_can_be_pickled_and_put_into_another_pool_with_envs_that_may_not_be_built_yet(lazy: bool) -> None:
    with begun(walks(3), num_workers=2, seed=9) as pool:
        play(pool, 3)
        kept = pickle.dumps(pool.get_state())
        expected = play(pool, 20)
    with Pool(walks(3), backend="serial", lazy=lazy) as other:
        other.set_state(pickle.loads(kept))
        assert_same(play(other, 20), expected)


# -- ends of episodes ------------------------------------------------------------------------------------------


def until_over(pool: Pool) -> Batch:
    """Steps until the time limit has ended the episode of each env. Returns the last batch."""
    batch = pool.step(np.zeros(pool.num_envs, int))
    while not (batch.truncations | batch.terminations).all():
        batch = pool.step(np.zeros(pool.num_envs, int))
    return batch


@pytest.mark.parametrize("options", [{}, {"resets_ahead": True}, {"spares": 2}])
def test_an_env_continues_from_a_state_after_the_end_of_an_episode(options: Any) -> None:
    with begun(counting(2 + options.get("spares", 0), 3), **options, seed=0) as pool:
        until_over(pool)
        states = pool.get_state(state_fns="attributes")
        assert [(state.steps, state.is_over) for state in states] == [(0, True)] * 2
        following = pool.step([0, 0]).obs.tolist()
        play(pool, 1)
        back = pool.set_state(states)
        assert back.terminations.all()
        again = pool.step([0, 0]).obs.tolist()
        assert [obs[2:] for obs in again] == [[0, -1]] * 2
        if not options.get("spares"):  # with spares, other envs take the slots
            assert again == following


@pytest.mark.parametrize("late_options", [False, True])
@pytest.mark.parametrize("seeding", ["gymnasium", "per_episode"])
def test_an_env_that_gets_the_state_of_another_keeps_its_own_seeds_and_options(
    seeding: Any, late_options: bool
) -> None:
    def follow(backend: Any, *, resets_ahead: bool) -> list[Any]:
        options: Any = {"seeding": seeding, "backend": backend, "resets_ahead": resets_ahead}
        with begun(levelled(3, 3), num_workers=3, extras={"steps": lambda env: env.steps}, **options, seed=5) as pool:
            if late_options:  # resets in advance are made once more, with the options
                until_over(pool)
            pool.set_reset_options([{"level": 7}, {"level": 8}, {"level": 7}])
            if not late_options:
                until_over(pool)
            batches = [pool.fork_state(0, [1, 2], state_fns="attributes"), pool.step([1] * 3), pool.step([1] * 3)]
            seen = [0, 2, 3]  # not the number of resets: a reset in advance that is not used is one more
            return [(one.obs[:, seen].tolist(), list(one.infos), one.extras["steps"].tolist()) for one in batches]

    expected = follow("serial", resets_ahead=False)
    assert [level for *_, level in expected[1][0]] == [7, 8, 7]
    assert follow("process", resets_ahead=True) == expected


def test_same_step_pools_refuse_a_state_after_the_end_of_an_episode() -> None:
    with begun(counting(1, 2), num_workers=1) as pool:
        until_over(pool)
        (state,) = pool.get_state(state_fns="attributes")
    with begun(counting(1, 2), num_workers=1, autoreset="same_step") as pool:
        with pytest.raises(ValueError, match="expected a state within an episode for env 0, got one after its end"):
            pool.set_state([state])
        assert pool.step([1]).obs[0, 2] == 1


def test_set_state_does_not_change_later_seeds() -> None:
    def seeds(puts: bool) -> list[int]:
        with Pool(walks(1, limit=2), seeding="per_episode", backend="serial") as pool:
            batch = pool.reset(seed=7)
            rows_ = [batch.infos[0]["episode_seed"]]
            for i in range(12):
                batch = pool.step([0])
                rows_ += [info["episode_seed"] for info in batch.infos if "episode_seed" in info]
                if puts and i in (1, 4) and not batch.truncations[0]:
                    pool.set_state(pool.get_state())
            return rows_

    assert seeds(True) == seeds(False)


def test_an_env_that_was_never_reset_has_seeds_after_set_state() -> None:
    with begun(walks(1, limit=2), num_workers=1, seed=0) as pool:
        state = pool.get_state()
    with Pool(walks(1, limit=2), num_workers=1, seeding="per_episode") as pool:
        pool.set_state(state)
        rows_ = [info for _ in range(7) for info in pool.step([0]).infos if "episode_seed" in info]
        assert len({info["episode_seed"] for info in rows_}) == 2


@pytest.mark.parametrize("resets_ahead", [False, True])
def test_random_numbers_continue_from_a_state_after_the_end(resets_ahead: bool) -> None:
    with begun(walks(2, limit=3), num_workers=1, resets_ahead=resets_ahead, seed=4) as pool:
        until_over(pool)
        assert_continues(pool)


def test_an_env_that_is_due_for_renewal_continues_from_a_state() -> None:
    with begun(walks(2), num_workers=1, faults=FaultPolicy(renew_every=1), seed=1) as pool:
        assert_continues(pool, steps=2)


# -- refusals ------------------------------------------------------------------------------------------------


def pong() -> Any:
    gymnasium.register_envs(importlib.import_module("ale_py"))
    return gymnasium.make("ALE/Pong-v5")


@pytest.mark.parametrize(
    ("env_fn", "fns", "error", "message"),
    [
        (
            lambda: TimeLimit(CountingEnv(), 5),
            None,
            InvalidEnvError,
            "got env 1, TimeLimit<CountingEnv>; pass state_fns=",
        ),
        (pong, None, InvalidEnvError, r"repeat_action_probability=0, or pass state_fns=\(get, put\)"),
        (walks(1)[0], "attributes", EnvError, "the attribute 'lock' of SavingWalkEnv"),
        (partial(WritingEnv, Path("log")), "attributes", EnvError, "open file"),
        (partial(WritingEnv, Path("log")), (lambda env: env.log, put), EnvError, "open file"),
    ],
    ids=["no state methods", "repeated actions", "a lock", "a file", "a file in a state"],
)
def test_an_env_that_has_no_state_is_an_error_and_continues_its_episode(
    env_fn: Any, fns: Any, error: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if env_fn is pong:
        pytest.importorskip("ale_py")
    monkeypatch.chdir(tmp_path)
    with begun([env_fn] * 2, backend="serial") as pool:
        with pytest.raises(error, match=message):
            pool.get_state([1], state_fns=fns)
        pool.step([0, 0])
        assert [(env.step.count, env.reset.count) for env in pool.stats().envs] == [(1, 1)] * 2


def test_get_state_is_refused_for_envs_in_flight_or_without_reset(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([None, gate]), num_workers=2) as pool:
        with pytest.raises(StateError, match="expected envs that have been reset, got envs 0, 1"):
            pool.get_state(state_fns="attributes")
        pool.reset()
        pool.send([0], env_ids=[1])
        with pytest.raises(StateError, match="env 1 is in flight"):
            pool.get_state(state_fns="attributes")
        states = pool.get_state([0], state_fns="attributes")
        with pytest.raises(StateError, match="expected no env in flight"):
            pool.set_state(states, [0])
        gate.let_pass()  # no call has waited for the env
        pool.recv()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda pool, states: pool.set_state(states[:1]), ValueError, "expected 2 states, one for each env, got 1"),
        (lambda pool, states: pool.set_state([1, 2]), TypeError, "expected a sequence of states that get_state has"),
        (lambda pool, states: pool.set_state(states[0]), TypeError, "expected a sequence of states"),
        (lambda pool, states: pool.set_state(states, [0, 5]), ValueError, "env_ids"),
        (lambda pool, states: pool.get_state([7]), ValueError, "env_ids"),
        (lambda pool, states: pool.get_state(state_fns=3), TypeError, "expected state_fns to be a pair of functions"),
        (lambda pool, states: pool.get_state(state_fns=(take,)), TypeError, "expected state_fns to be a pair"),
        (lambda pool, states: pool.fork_state([0, 1], [0]), ValueError, "expected one env, or 1, to copy into"),
        (lambda pool, states: pool.fork_state(0, []), ValueError, "expected at least one env to copy into, got none"),
        (lambda pool, states: pool.set_state([], []), ValueError, "expected at least one env to put into a state"),
    ],
)
def test_bad_arguments_of_states_are_refused_before_anything_is_sent(
    call: Any, error: type[Exception], message: str
) -> None:
    with begun(walks(2), backend="serial") as pool:
        states = pool.get_state()
        with pytest.raises(error, match=message):
            call(pool, states)
        assert (pool.step([0, 0]).obs[:, 2] == 1).all()


def test_a_state_of_another_kind_of_env_is_refused() -> None:
    with Pool(walks(1), num_workers=1) as pool, Pool([WalkEnv], num_workers=1) as other:
        pool.reset()
        other.reset()
        message = "expected a state of WalkEnv for env 0, got one of TimeLimit<SavingWalkEnv>"
        with pytest.raises(ValueError, match=message):
            other.set_state(pool.get_state())


@pytest.mark.parametrize("faults", ["raise", "restart", "resume"])
def test_a_state_with_another_observation_shape_is_refused_without_effect(faults: Any) -> None:
    with begun([lambda: SizedEnv(3)], num_workers=1) as other:
        states = other.get_state(state_fns="attributes")
    with begun([lambda: SizedEnv(5)], num_workers=1, faults=faults) as pool:
        with pytest.raises(ValueError, match=r"expected a state of an env with the observations <i8 \(5,\) for env 0"):
            pool.set_state(states)
        assert pool.step([1]).obs[0, 2] == 1
        assert pool.stats().restarts == 0


def test_a_replaced_env_has_no_state_before_its_reset() -> None:
    with begun(walks(2), backend="serial") as pool:
        pool.replace([1], walks(1))
        with pytest.raises(StateError, match="got env 1, rebuilt and not reset"):
            pool.get_state()
        pool.step([0, 0])
        assert len(pool.get_state()) == 2


# -- known envs ------------------------------------------------------------------------------------------

CLASSIC = ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", TAXI, "Blackjack-v1"]
MUJOCO = ["Ant-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5", "Pusher-v5"]
if MINUTES:
    MUJOCO += ["HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "InvertedPendulum-v5", "Reacher-v5", "Swimmer-v5"]
RESTORES = 100 if MINUTES else 25


@pytest.mark.parametrize("env_id", [*CLASSIC, *MUJOCO, "ALE/Pong-v5"])
def test_known_envs_continue_from_a_state_like_a_twin(env_id: str) -> None:
    """Copies the state of env 0 into env 1 several times, and compares the steps that follow."""
    if env_id in MUJOCO:
        pytest.importorskip("mujoco")
    if env_id == "ALE/Pong-v5":
        gymnasium.register_envs(pytest.importorskip("ale_py"))
    options: Any = {"repeat_action_probability": 0} if env_id == "ALE/Pong-v5" else {"max_episode_steps": 30}
    make = lambda: RecordEpisodeStatistics(gymnasium.make(env_id, **options))  # noqa: E731
    with begun([make] * 2, backend="serial", seed=0) as pool:
        space = pool.single_action_space
        space.seed(0)
        for _ in range(RESTORES):
            pool.step(np.stack([space.sample(), space.sample()]))
            pool.fork_state(0, 1)
            for _ in range(4):
                batch = pool.step(np.stack([space.sample()] * 2))
                for column in (*leaves(batch.obs), batch.rewards, batch.terminations, batch.truncations):
                    np.testing.assert_array_equal(column[1], column[0])
