"""Spares: at the end of an episode, a slot continues at once with an env that has reset in advance."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import accidents
import pytest
from pool_envs import Gate, HookedEnv, begun, counting, hooked
from spare_envs import LENGTHS, step, tags, uneven

from remuda import FaultPolicy, Pool, WorkerDiedError

MODES = ("next_step", "same_step", "disabled", "background")


def run(pool: Pool, mode: Any, steps: int) -> list[Any]:
    """Returns all rows after a reset with a seed, without the number of the episode."""
    seen = [0, 2, 3]
    batch = pool.reset(seed=0)
    rows: list[Any] = [batch.obs[:, seen].tolist()]
    for _ in range(steps):
        batch = step(pool, mode, batch)
        final = None if batch.final_obs is None else batch.final_obs[batch.terminations][:, seen].tolist()
        arrays = (batch.env_ids, batch.obs[:, seen], batch.rewards, batch.terminations)
        rows.append((*[array.tolist() for array in arrays], final))
    return rows


# -- order -----------------------------------------------------------------------------------------------


def test_the_spare_that_has_waited_longest_is_next() -> None:
    with Pool(counting(5, length=2), spares=2, backend="serial") as pool:
        assert pool.num_envs == 3
        assert tags(pool.reset()) == [0, 1, 2]
        pool.step([1, 1, 1])
        assert pool.step([1, 1, 1]).terminations.all()
        batch = pool.step([1, 1, 1])
        assert tags(batch) == [3, 4, 0]
        assert batch.obs[:, 1:].tolist() == [[1, 0, -1], [1, 0, -1], [2, 0, -1]]
        assert batch.rewards.tolist() == [0.0] * 3
        assert batch.env_ids.tolist() == [0, 1, 2]
        pool.step([1, 1, 1])
        assert pool.step([1, 1, 1]).terminations.all()
        assert tags(pool.step([1, 1, 1])) == [1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_restores_the_order_of_spares(mode: Any) -> None:
    with Pool(uneven(7), spares=3, autoreset=mode, backend="serial") as pool:
        first = run(pool, mode, 17)
        pool.discard()
        assert run(pool, mode, 17) == first


@pytest.mark.parametrize("mode", ["next_step", "same_step", "background"])
def test_each_slot_returns_whole_episodes(mode: Any) -> None:
    with Pool(uneven(7), spares=3, autoreset=mode, backend="serial") as pool:
        batch = pool.reset()
        at = {slot: (int(row[0]), int(row[2])) for slot, row in enumerate(batch.obs)}  # env, step
        ended = 0
        for _ in range(60):
            batch = step(pool, mode, batch)
            for slot, row, terminated in zip(batch.env_ids.tolist(), batch.obs, batch.terminations, strict=True):
                env, steps = at[slot]
                if mode == "same_step" and terminated:
                    assert batch.final_obs[slot, [0, 2]].tolist() == [env, steps + 1] == [env, LENGTHS[env % 6]]
                    assert row[2] == 0
                elif row[2] != 0:
                    assert row[[0, 2]].tolist() == [env, steps + 1]
                    assert terminated == (row[2] == LENGTHS[env % 6])
                else:
                    assert steps == LENGTHS[env % 6]
                ended += bool(terminated)
                at[slot] = (int(row[0]), int(row[2]))
        assert ended > 20


@pytest.mark.parametrize("failing", [None, 0, 1])
@pytest.mark.parametrize("act", [accidents.kill_myself, accidents.raise_value_error])
def test_the_slot_that_was_sent_first_gets_the_first_spare(failing: int | None, act: Any, tmp_path: Path) -> None:
    """Slot 0 was sent its step first. It receives the first spare though it finishes last, by a fault or by the end of
    its episode.
    """
    gate = Gate(tmp_path)

    def step(env: HookedEnv, _: int) -> None:
        if env.tag == 0:
            gate.wait()
        if env.tag == failing:
            act()

    envs = hooked(4, (0, 1), 1, step=step)
    with begun(envs, spares=2, autoreset="same_step", faults="restart") as pool:
        pool.send([1, 1])
        gate.await_arrival()
        with suppress(WorkerDiedError):
            pool.call("echo", env_ids=[1])  # env 1 has finished its step when it answers or dies
        assert len(pool.recv(min_envs=2, timeout=0)) == 0
        gate.open()
        batch = pool.recv()
        assert tags(batch) == [2, 3]
        assert batch.final_obs[:, 0].tolist() == [0, 1]
        assert batch.truncations.tolist() == [failing == 0, failing == 1]


# -- slow resets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_reset_delays_no_slot(mode: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = [
        lambda: HookedEnv(0, 1 if mode == "same_step" else 2, autoreset=lambda _: gate.wait()),
        *counting(3)[1:],
    ]
    with Pool(envs, spares=1, autoreset=mode) as pool:
        batch = pool.reset()
        for _ in range(1 if mode == "same_step" else 2):
            batch = step(pool, mode, batch)
        gate.await_arrival()  # the reset of env 0 does not end before the gate opens
        if mode != "same_step":
            batch = pool.recv(min_envs=1) if mode == "background" else step(pool, mode, batch)
        assert batch.env_ids[0] == 0
        assert tags(batch)[0] == 2
        gate.open()


def test_spares_reset_when_the_first_reset_is_sent(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with begun(hooked(2, (1,), reset=lambda _: gate.wait()), spares=1, backend="thread"):
        gate.let_pass()


# -- requested resets -------------------------------------------------------------------------------------


def test_seeds_options_and_calls_reach_the_spares() -> None:
    with Pool(counting(4, length=1), spares=2, backend="serial") as pool:
        pool.reset(seed=10, options={"a": 1})
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 3]
        assert pool.get_attr("last_seed") == [12, 13]
        assert pool.get_attr("last_options") == [{"a": 1}] * 2
        # answers of spares follow those of the slots
        assert pool.apply_async(lambda env: env.tag, with_spares=True).result() == [2, 3, 0, 1]
        pool.reset(seed=[1, 2, 3, 4])
        assert pool.get_attr("last_seed") == [1, 2]
        pool.step([1, 1])
        pool.step([1, 1])
        assert pool.get_attr("last_seed") == [3, 4]


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_a_seed_goes_to_the_env_in_the_slot(mode: Any) -> None:
    with begun(counting(3, length=1), spares=1, autoreset=mode, backend="serial") as pool:
        assert pool.step([1, 1]).terminations.all()
        assert tags(pool.reset(seed=[5], env_ids=[1])) == [1]
        assert tags(pool.reset(env_ids=[0])) == [2]  # without a seed a spare takes the slot


def test_reset_slots_returns_envs_to_their_slots() -> None:
    with begun(counting(4, length=1), spares=2, backend="serial", seed=10) as pool:
        for expected in ([2, 3], [0, 1]):
            pool.step([1, 1])
            assert tags(pool.step([1, 1])) == expected
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 3]
        assert tags(pool.reset()) == [2, 3]
        pool.send_reset(reset_slots=True)
        assert tags(pool.recv()) == [0, 1]
        assert pool.get_attr("last_seed") == [None, None]
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 3]
        with pytest.raises(ValueError, match="expected env_ids=None with reset_slots=True"):
            pool.send_reset(reset_slots=True, env_ids=[0])
        pool.request_obs()
        assert tags(pool.recv()) == [2, 3]


def test_set_attr_also_reaches_spares() -> None:
    with begun(counting(3, length=1), spares=1, backend="serial") as pool:
        pool.set_attr("length", 5)
        pool.set_attr("total_steps", 40, env_ids=[1])
        assert pool.get_attr("length") == [5, 5]
        pool.set_attr("length", 1, env_ids=[0])
        pool.step([1, 1])
        pool.step([1, 1])
        assert pool.get_attr("tag") == [2, 1]
        assert pool.get_attr("length") == [5, 5]
        assert pool.get_attr("total_steps") == [0, 42]


# -- other ------------------------------------------------------------------------------------------------


def test_a_seed_reaches_a_spare_that_is_due_for_renewal() -> None:
    """The spare was within its last episode before its renewal when all envs were reset."""
    with begun(counting(2, length=1), spares=1, faults=FaultPolicy(renew_every=1), backend="serial", seed=0) as pool:
        pool.step([1])
        assert tags(pool.step([1])) == [1]  # env 1 is renewed after this episode
        pool.reset(seed=10)
        pool.step([1])
        assert pool.step([1]).obs[0, :2].tolist() == [1, 1]
        assert pool.get_attr("last_seed") == [11]


def test_a_spare_is_renewed_before_it_is_used_in_the_same_step() -> None:
    faults = FaultPolicy(renew_every=1)
    with begun(counting(3, length=1), spares=1, faults=faults, autoreset="same_step", backend="serial") as pool:
        for expected in ([2, 0], [1, 2], [0, 1]):
            assert pool.step([1, 1]).obs[:, :2].tolist() == [[env, 1] for env in expected]


def test_spares_serve_all_parts_and_use_per_episode_seeds() -> None:
    with Pool(counting(6, length=1), spares=2, seeding="per_episode") as pool:
        first, second = pool.split(2)
        for part in (first, second):
            part.reset(seed=1)
        for part in (first, second):
            assert part.step([1, 1]).terminations.all()
        batch = first.step([1, 1])
        assert tags(batch) == [4, 5]
        seeds = pool.get_attr("last_seed", env_ids=first.env_ids)
        assert [info["episode_seed"] for info in batch.infos] == seeds
        assert tags(second.step([1, 1])) == first.env_ids.tolist()


def test_a_refused_reset_does_not_change_the_slots() -> None:
    with begun(counting(3, length=1), spares=1, backend="serial") as pool:
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 0]
        bad: list[dict[str, Any]] = [{"seed": [1]}, {"seed": [1, 2, 3, 4]}, {"seed": 0, "options": [{}]}]
        for arguments in bad:
            with pytest.raises(ValueError, match="expected"):
                pool.reset(**arguments)
        pool.request_obs()
        assert tags(pool.recv()) == [2, 0]
