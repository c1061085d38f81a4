"""Spare envs: a slot whose episode is over goes on with a fresh env at once, in an order that is always the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import accidents
import odd_exceptions
import pytest
from pairs import each
from pool_envs import Gate, HookedEnv, TextEnv, counting, hooked
from spare_envs import LENGTHS, step, tags, uneven

from remuda import Batch, FaultPolicy, Pool, WorkerDiedError

BACKENDS = ("process", "thread", "serial")
CONCURRENT = ("process", "thread")
MODES = ("next_step", "same_step", "disabled", "background")


def run(pool: Pool, mode: Any, steps: int, seed: int | None = 0) -> list[Any]:
    batch = pool.reset(seed=seed)
    told: list[Any] = [batch.obs.tolist()]
    for _ in range(steps):
        batch = step(pool, mode, batch)
        final = None if batch.final_obs is None else batch.final_obs[batch.terminated].tolist()
        arrays = (batch.env_ids, batch.obs, batch.reward, batch.terminated)
        told.append((*[array.tolist() for array in arrays], final))
    return told


# -- order -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_has_waited_longest_is_next(backend: Any) -> None:
    with Pool(counting(5, length=2), spares=2, backend=backend) as pool:
        assert pool.num_envs == 3
        assert tags(pool.reset()) == [0, 1, 2]
        pool.step([1, 1, 1])
        assert pool.step([1, 1, 1]).terminated.all()
        batch = pool.step([1, 1, 1])
        assert tags(batch) == [3, 4, 0]
        assert batch.obs[:, 1:].tolist() == [[1, 0, -1], [1, 0, -1], [2, 0, -1]]
        assert batch.reward.tolist() == [0.0] * 3
        assert batch.env_ids.tolist() == [0, 1, 2]
        pool.step([1, 1, 1])
        assert pool.step([1, 1, 1]).terminated.all()
        assert tags(pool.step([1, 1, 1])) == [1, 2, 3]


@each(mode=MODES, backend=CONCURRENT)
def test_every_backend_and_every_run_tell_the_same(backend: Any, mode: Any) -> None:
    def told(backend: Any) -> list[Any]:
        with Pool(uneven(7), spares=3, autoreset=mode, backend=backend) as pool:
            return run(pool, mode, 40)

    assert told(backend) == told("serial") == told("serial")


@each(mode=MODES, backend=BACKENDS)
def test_a_seed_begins_everything_anew(backend: Any, mode: Any) -> None:
    with Pool(uneven(7), spares=3, autoreset=mode, backend=backend) as pool:
        first = run(pool, mode, 17)
        pool.discard()
        again = run(pool, mode, 17)

    def without_episode(told: Any) -> Any:
        if not isinstance(told, (list, tuple)):
            return told
        if len(told) == 4 and all(isinstance(number, int) for number in told):
            return (told[0], *told[2:])
        return [without_episode(one) for one in told]

    assert without_episode(first) == without_episode(again)


@each(mode=MODES, backend=BACKENDS)
def test_each_slot_tells_whole_episodes(backend: Any, mode: Any) -> None:
    with Pool(uneven(7), spares=3, autoreset=mode, backend=backend) as pool:
        batch = pool.reset()
        at = {slot: (int(row[0]), int(row[2])) for slot, row in enumerate(batch.obs)}  # env, step
        ended = 0
        for _ in range(60):
            batch = step(pool, mode, batch)
            for slot, row, terminated in zip(batch.env_ids.tolist(), batch.obs, batch.terminated, strict=True):
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
                at[slot] = (int(row[0]), int(row[2])) if mode != "disabled" or not terminated else at[slot]
            if mode == "disabled":
                observed = pool_observed(pool, batch)
                at.update(observed)
        assert ended > 20


def pool_observed(pool: Pool, batch: Batch) -> dict[int, tuple[int, int]]:
    """After the reset of whoever has ended: where each slot is now."""
    for slot in batch.env_ids[batch.terminated].tolist():
        pool.reset(env_ids=[slot])
    pool.send_observe()
    rows = pool.recv().obs
    batch.terminated[:] = False
    return {slot: (int(row[0]), int(row[2])) for slot, row in enumerate(rows)}


@pytest.mark.parametrize("backend", CONCURRENT)
def test_in_the_same_step_who_was_sent_first_chooses_first(backend: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = hooked(4, (0,), 1, step=lambda *_: gate.wait())
    with Pool(envs, spares=2, autoreset="same_step", backend=backend) as pool:
        pool.reset()
        pool.send([1, 1])
        gate.await_arrival()
        assert len(pool.recv(min_envs=2, timeout=0)) == 0
        gate.open()
        batch = pool.recv()
        assert tags(batch) == [2, 3]
        assert batch.final_obs[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("act", [accidents.kill_myself, accidents.raise_value_error])
@pytest.mark.parametrize("failing", [0, 1])
def test_who_fails_in_the_same_step_chooses_no_sooner(failing: int, act: Any, tmp_path: Path) -> None:
    """Slot 0 was sent its step first, and is done last: whether it fails or ends its episode, it comes first."""
    gate = Gate(tmp_path)

    def step(env: HookedEnv, _: int) -> None:
        if env.tag == 0:
            gate.wait()
        if env.tag == failing:
            act()

    envs = hooked(4, (0, 1), 1, step=step)
    with Pool(envs, spares=2, autoreset="same_step", faults="restart") as pool:
        pool.reset()
        pool.send([1, 1])
        gate.await_arrival()
        with suppress(WorkerDiedError):
            pool.call("echo", env_ids=[1])  # it is done with its step before
        gate.open()
        batch = pool.recv()
        assert tags(batch) == [2, 3]
        assert batch.truncated.tolist() == [failing == 0, failing == 1]


# -- nobody waits ----------------------------------------------------------------------------------------


@each(mode=MODES, backend=CONCURRENT)
def test_a_slow_reset_holds_up_nobody(backend: Any, mode: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    envs = [
        lambda: HookedEnv(0, 1 if mode == "same_step" else 2, autoreset=lambda _: gate.wait()),
        *counting(3)[1:],
    ]
    with Pool(envs, spares=1, autoreset=mode, backend=backend) as pool:
        batch = pool.reset()
        for _ in range(1 if mode == "same_step" else 2):
            batch = step(pool, mode, batch)
        gate.await_arrival()  # env 0 resets, and will not be done
        if mode != "same_step":
            batch = pool.recv(min_envs=1) if mode == "background" else step(pool, mode, batch)
        assert batch.env_ids[0] == 0
        assert tags(batch)[0] == 2
        gate.open()


@pytest.mark.parametrize("backend", CONCURRENT)
def test_spares_reset_when_the_first_reset_is_sent(backend: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(hooked(2, (1,), reset=lambda _: gate.wait()), spares=1, backend=backend) as pool:
        pool.reset()
        gate.let_pass()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_resets_once_for_each_episode(backend: Any) -> None:
    with Pool(counting(4, length=1), spares=2, backend=backend) as pool:
        pool.reset()
        seen: dict[int, list[int]] = {tag: [] for tag in range(4)}
        for _ in range(20):
            batch = pool.step([1, 1])
            if not batch.terminated[0]:
                for tag, episode in batch.obs[:, :2].tolist():
                    seen[tag].append(episode)
        for tag, episodes in seen.items():
            first = 2 if tag < 2 else 1
            assert episodes == list(range(first, first + 5))


# -- resets that are asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds_and_options_reach_the_spares(backend: Any) -> None:
    with Pool(counting(4, length=1), spares=2, backend=backend) as pool:
        pool.reset(seed=10, options={"a": 1})
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 3]
        assert pool.get_attr("last_seed") == [12, 13]
        assert pool.get_attr("last_options") == [{"a": 1}] * 2
        pool.reset(seed=[1, 2, 3, 4])
        assert pool.get_attr("last_seed") == [1, 2]
        pool.step([1, 1])
        pool.step([1, 1])
        assert pool.get_attr("last_seed") == [3, 4]


@each(mode=["next_step", "disabled"], backend=BACKENDS)
def test_a_seed_is_given_to_the_env_that_is_there(backend: Any, mode: Any) -> None:
    with Pool(counting(3, length=1), spares=1, autoreset=mode, backend=backend) as pool:
        pool.reset()
        assert pool.step([1, 1]).terminated.all()
        assert tags(pool.reset(seed=[5], env_ids=[1])) == [1]
        assert tags(pool.reset(env_ids=[0])) == [2]  # none is asked for: a fresh one will do


@pytest.mark.parametrize("backend", BACKENDS)
def test_envs_take_their_places_again_without_a_seed(backend: Any) -> None:
    with Pool(counting(4, length=1), spares=2, backend=backend) as pool:
        pool.reset(seed=10)
        for expected in ([2, 3], [0, 1]):
            pool.step([1, 1])
            assert tags(pool.step([1, 1])) == expected
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 3]
        assert tags(pool.reset()) == [2, 3]
        pool.send_reset(reseat=True)
        assert tags(pool.recv()) == [0, 1]
        assert pool.get_attr("last_seed") == [None, None]
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 3]
        with pytest.raises(ValueError, match="expected env_ids=None with reseat=True"):
            pool.send_reset(reseat=True, env_ids=[0])
        pool.send_observe()
        assert tags(pool.recv()) == [2, 3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_attributes_are_set_in_the_spares_too(backend: Any) -> None:
    with Pool(counting(3, length=1), spares=1, backend=backend) as pool:
        pool.reset()
        pool.set_attr("length", 5)
        pool.set_attr("total_steps", 40, env_ids=[1])
        assert pool.get_attr("length") == [5, 5]
        pool.set_attr("length", 1, env_ids=[0])
        pool.step([1, 1])
        pool.step([1, 1])
        assert pool.get_attr("tag") == [2, 1]
        assert pool.get_attr("length") == [5, 5]
        assert pool.get_attr("total_steps") == [0, 42]


@pytest.mark.parametrize("backend", BACKENDS)
def test_answers_of_spares_are_not_unpickled(backend: Any) -> None:
    def answer(env: Any) -> Any:
        return odd_exceptions.NeedsArguments(1, "one") if env.tag == 2 else env.tag

    with Pool(counting(3), spares=1, backend=backend) as pool:
        pool.reset()
        assert pool.apply_async(answer, with_spares=True).result() == [0, 1]


# -- the rest --------------------------------------------------------------------------------------------


def test_objects_travel_from_spares_too() -> None:
    def run(backend: Any) -> list[Any]:
        with Pool([lambda: TextEnv()] * 3, spares=1, backend=backend) as pool:
            told = [pool.reset(seed=0).obs]
            told += [pool.step(["abc", "d" * 9]).obs for _ in range(12)]
            return told

    assert run("process") == run("serial")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"spares": -1}, "spares to be an int from 0 to 3"),
        ({"spares": 4}, "spares to be an int from 0 to 3"),
        ({"spares": True}, "spares to be an int"),
        ({"spares": 1, "num_workers": 2}, "num_workers=None"),
        ({"spares": 1, "max_concurrency": 2}, "max_concurrency=None"),
    ],
)
def test_what_cannot_be(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Pool(counting(4), backend="serial", **arguments)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_reaches_a_spare_that_is_due_for_renewal(backend: Any) -> None:
    """It was in the middle of its last episode when all were reset."""
    with Pool(counting(2, length=1), spares=1, faults=FaultPolicy(renew_every=1), backend=backend) as pool:
        pool.reset(seed=0)
        pool.step([1])
        assert tags(pool.step([1])) == [1]  # which is to be renewed when its episode is over
        pool.reset(seed=10)
        pool.step([1])
        assert pool.step([1]).obs[0, :2].tolist() == [1, 1]
        assert pool.get_attr("last_seed") == [11]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_spare_that_is_taken_in_the_step_in_which_it_became_one_is_renewed_before(backend: Any) -> None:
    faults = FaultPolicy(renew_every=1)
    with Pool(counting(3, length=1), spares=1, faults=faults, autoreset="same_step", backend=backend) as pool:
        pool.reset()
        for expected in ([2, 0], [1, 2], [0, 1]):
            assert pool.step([1, 1]).obs[:, :2].tolist() == [[env, 1] for env in expected]


def test_a_seed_outlives_the_worker_of_a_spare(tmp_path: Path) -> None:
    def reset(env: HookedEnv) -> None:
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with Pool(hooked(2, (1,), 1, reset=reset), spares=1, faults="restart") as pool:
        pool.reset(seed=10)
        pool.step([1])
        assert tags(pool.step([1])) == [1]
        assert pool.get_attr("last_seed") == [11]


@pytest.mark.parametrize("backend", BACKENDS)
def test_spares_of_parts_have_seeds_for_their_episodes(backend: Any) -> None:
    with Pool(counting(3, length=1), spares=1, seeding="per_episode", backend=backend) as pool:
        first, second = pool.split(2)
        first.reset(seed=1)
        second.reset(seed=1)
        first.step([1])
        batch = first.step([1])
        assert tags(batch) == [2]
        assert batch.infos[0]["episode_seed"] == pool.get_attr("last_seed", env_ids=[0])[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_that_is_refused_changes_nothing(backend: Any) -> None:
    with Pool(counting(3, length=1), spares=1, backend=backend) as pool:
        pool.reset()
        pool.step([1, 1])
        assert tags(pool.step([1, 1])) == [2, 0]
        bad: list[Callable[[], Any]] = [
            lambda: pool.reset(seed=[1]),
            lambda: pool.reset(seed=[1, 2, 3, 4]),
            lambda: pool.reset(seed=0, options=[{}]),
        ]
        for reset in bad:
            with pytest.raises(ValueError, match="expected"):
                reset()
        pool.send_observe()
        assert tags(pool.recv()) == [2, 0]


def test_no_advice_is_given_that_could_not_be_taken(caplog: pytest.LogCaptureFixture) -> None:
    with Pool(counting(9), spares=1) as pool:
        pool.reset()
        for _ in range(260):
            pool.step([1] * 8)
    assert "num_workers" not in caplog.text
