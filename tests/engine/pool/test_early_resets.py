"""Early resets begin when an episode ends.

Resets in advance: the pool returns their results with the next step. Background autoreset: an env is returned at once,
resets by itself, and returns its first observation later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import die, once, raise_value_error
from pool_envs import CountingEnv, DiceEnv, EnvFn, Gate, HookedEnv, assert_same, begun, counting, hooked
from programs import Watched, kill, pids_of

from remuda import Batch, EnvError, FaultPolicy, Pool, StateError, WorkerDiedError


def values_of(batch: Batch) -> Any:
    arrays = batch.obs, batch.rewards, batch.terminations, batch.truncations
    return [array.copy() for array in arrays], list(batch.infos)


@pytest.mark.parametrize("seeding", ["gymnasium", "per_episode"])
def test_resets_in_advance_do_not_change_results(seeding: Any) -> None:
    options: dict[str, Any] = {"num_workers": 2, "seeding": seeding}
    with Pool([DiceEnv] * 5, **options) as plain, Pool([DiceEnv] * 5, resets_ahead=True, **options) as ahead:
        assert_same(values_of(ahead.reset(seed=3)), values_of(plain.reset(seed=3)))
        for _ in range(60):
            assert_same(values_of(ahead.step([0] * 5)), values_of(plain.step([0] * 5)))


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_reset_in_advance_begins_before_it_is_requested(backend: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = hooked(2, (0,), 1, autoreset=lambda _: gate.wait())
    with begun(envs, backend=backend, resets_ahead=True) as pool:
        assert pool.step([1, 1]).terminations.all()
        gate.let_pass()  # the pool was not called since the step
        assert pool.step([2, 2]).obs.tolist() == [[0, 2, 0, -1], [1, 2, 0, -1]]


def test_steps_of_other_envs_precede_resets_in_advance(tmp_path: Path) -> None:
    """A worker resets in advance after it has sent all step results, and executes a new step before further resets."""
    gates = [Gate(tmp_path, str(i)) for i in range(2)]
    envs = [lambda gate=gate: HookedEnv(0, 1, autoreset=lambda _: gate.wait()) for gate in gates]
    with begun([*envs, *counting(1)], num_workers=1, resets_ahead=True) as pool:
        assert pool.step([1, 1, 1]).obs[:, 2].tolist() == [1, 1, 1]
        gates[0].await_arrival()  # env 0 resets, env 1 waits for its reset
        pool.send([5], [2])
        gates[0].open()
        assert pool.recv().obs[0, 2] == 2
        gates[1].let_pass()
        assert pool.step([2, 2, 2]).obs[:, 1].tolist() == [2, 2, 1]


def test_a_requested_reset_uses_the_reset_in_advance() -> None:
    with begun(counting(2, length=1), backend="serial", resets_ahead=True) as pool:
        pool.step([1, 1])
        assert pool.reset().obs[:, 1].tolist() == [2, 2]  # this reset was made in advance
        pool.step([1, 1])
        assert pool.reset(seed=4).obs[:, 2].tolist() == [0, 0]
        assert pool.get_attr("last_seed") == [4, 5]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_reset_in_advance_is_repeated_after_a_death(num_workers: int, tmp_path: Path) -> None:
    envs = hooked(2, length=2, autoreset=once(tmp_path / "died", die))
    with Pool(envs, num_workers=num_workers, resets_ahead=True, faults="restart") as pool:
        worker = Watched([pids_of(pool)[-1]])
        pool.reset()
        for _ in range(2):
            batch = pool.step([1, 1])
        assert batch.terminations.all()
        worker.await_end()
        batch = pool.step([2, 2])
        assert not batch.truncations.any()
        assert batch.obs[:, 2].tolist() == [0, 0]
        assert pool.step([3, 3]).obs[:, 2:].tolist() == [[1, 3], [1, 3]]
        assert pool.stats().restarts == 1


# Options with which resets begin at the end of an episode, and the call that returns their results.
EARLY = pytest.mark.parametrize(
    ("options", "go_on"),
    [
        ({"resets_ahead": True}, lambda pool: pool.step([2, 2])),
        ({"autoreset": "background"}, lambda pool: pool.recv(min_envs=2, order="slot")),
    ],
)


@EARLY
@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_exception_of_an_early_reset_is_raised_by_the_next_call(
    num_workers: int, options: Any, go_on: Callable[[Pool], Batch], tmp_path: Path
) -> None:
    fails = once(tmp_path / "once", raise_value_error)
    with begun(hooked(2, length=1, autoreset=fails), num_workers=num_workers, **options) as pool:
        assert pool.step([1, 1]).terminations.all()
        assert pool.call("pid")  # the env has failed, and the pool has not reported it
        with pytest.raises(EnvError, match="env 1 .* raised ValueError in reset: broken") as raised:
            go_on(pool)
        (failure,) = raised.value.failures
        assert (failure.env_id, failure.operation, failure.where.step) == (1, "reset", 0)  # type: ignore[union-attr]
        assert pool.recv().env_ids.tolist() == [0]
        with pytest.raises(StateError, match="env 1"):
            pool.send([1, 1])
        assert pool.reset(env_ids=[1]).obs[:, 1].tolist() == [3]


@EARLY
def test_a_death_in_an_early_reset_is_raised_by_the_next_call(
    options: Any, go_on: Callable[[Pool], Batch], tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    with begun(hooked(2, length=1, autoreset=lambda _: gate.wait()), **options) as pool:
        assert pool.step([1, 1]).terminations.all()
        gate.await_arrival()
        kill(pool, 1)
        with pytest.raises(WorkerDiedError, match="reset") as raised:
            go_on(pool)
        assert raised.value.env_ids == (1,)


@EARLY
def test_an_early_reset_has_a_deadline(options: Any, go_on: Callable[[Pool], Batch], tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    hang = once(tmp_path / "once", lambda _: gate.wait())
    policy = FaultPolicy("restart", reset_timeout=1.0)
    with begun(hooked(2, length=1, autoreset=hang), faults=policy, **options) as pool:
        pool.step([1, 1])
        gate.await_arrival()  # the reset never passes the gate
        batch = go_on(pool)
        assert batch.obs.tolist() == [[0, 2, 0, -1], [1, 1, 0, -1]]
        assert not batch.truncations.any()
        assert pool.stats().restarts == 1


def test_resets_ahead_changes_nothing_with_spares() -> None:
    with Pool(counting(3, length=1), spares=1, resets_ahead=True) as pool:
        assert pool.reset().obs[:, 0].tolist() == [0, 1]
        assert pool.step(np.array([1, 1])).terminations.all()
        assert pool.step(np.array([1, 1])).obs[:, 0].tolist() == [2, 0]


# -- in the background -----------------------------------------------------------------------------------


def waiting_for(gate: Gate, tag: int = 0, length: int = 2) -> list[EnvFn]:
    """Two envs. The autoreset of env `tag` waits at a gate."""
    return hooked(2, (tag,), length, autoreset=lambda _: gate.wait())


def test_other_envs_step_while_one_env_resets(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(waiting_for(gate), autoreset="background") as pool:
        for _ in range(2):
            batch = pool.step([7, 8])
        assert batch.terminations.all()
        assert pool.pending == 2  # both envs reset by themselves
        gate.await_arrival()
        for expected in ([1, 2, 0, -1], [1, 2, 1, 5], [1, 2, 2, 5], [1, 3, 0, -1]):
            batch = pool.recv(min_envs=1)
            assert batch.obs.tolist() == [expected]
            if not batch.terminations[0]:
                pool.send([5], [1])
        gate.open()
        batch = pool.recv(order="slot")
        assert batch.obs[:, :3].tolist() == [[0, 2, 0], [1, 3, 1]]
        assert batch.rewards.tolist() == [0.0, 5.0]
        assert not batch.terminations.any()


def test_a_reset_begins_before_the_end_is_received_and_sends_to_its_env_are_refused(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(waiting_for(gate, length=1), autoreset="background") as pool:
        pool.send([1, 1])
        gate.await_arrival()  # the reset has begun before any further call of the pool
        assert pool.recv().terminations.all()
        for send in (lambda: pool.send([1], [0]), lambda: pool.send_reset(env_ids=[0]), lambda: pool.send([1, 1])):
            with pytest.raises(StateError, match="env 0 is in flight"):
                send()
        gate.open()
        assert pool.recv().obs[:, 1].tolist() == [2, 2]


def test_a_requested_reset_resets_once_more() -> None:
    with begun(counting(2, length=1), autoreset="background", backend="serial") as pool:
        assert pool.step([1, 1]).terminations.all()
        pool.recv()
        assert pool.reset(seed=4, options={"a": 1}).obs[:, 1].tolist() == [3, 3]
        assert pool.get_attr("last_seed") == [4, 5]
        assert pool.get_attr("last_options") == [{"a": 1}] * 2


def test_discard_leaves_every_env_in_an_episode() -> None:
    envs: list[EnvFn] = [*counting(2), partial(CountingEnv, 2, 1)]
    with begun(envs, autoreset="background", backend="serial", num_workers=2) as pool:
        pool.send([1] * 3)
        pool.discard()
        assert pool.pending == 0
        assert pool.step([2] * 3).obs[:, 1].tolist() == [1, 1, 2]


# -- faults ------------------------------------------------------------------------------------------------


def test_recv_raises_a_death_that_precedes_the_background_reset(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(waiting_for(gate, length=1), autoreset="background") as pool:
        pool.send([1, 1])
        gate.await_arrival()
        kill(pool, 0)
        pool.call("pid", env_ids=[1])  # the pool detects the death, although no call waits for env 0
        with pytest.raises(WorkerDiedError) as raised:
            while True:
                pool.recv(max_envs=2)
        assert raised.value.env_ids == (0,)


def test_an_episode_that_a_fault_cut_off_is_followed_by_a_reset() -> None:
    def raise_at_two(env: HookedEnv, action: int) -> None:
        if env.total_steps == 2:
            raise_value_error()

    with begun(hooked(2, (0,), step=raise_at_two), autoreset="background", backend="serial", faults="restart") as pool:
        pool.step([1, 1])
        batch = pool.step([2, 2])
        assert batch.truncations.tolist() == [True, False]
        assert batch.infos[0]["fault"].env_id == 0
        pool.send([3], [1])
        batch = pool.recv(order="slot")
        assert batch.obs.tolist() == [[0, 1, 0, -1], [1, 1, 3, 3]]
