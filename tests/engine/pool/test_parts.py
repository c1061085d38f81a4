"""Parts of a split pool: each has its own frames, and sends and receives independently of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import raise_value_error
from pool_envs import Gate, NestedEnv, TextEnv, begun, counting, gated, hooked
from programs import collect

from remuda import EnvError, InvalidActionError, Part, Pool, StateError


@pytest.mark.parametrize("num_workers", [1, 3, 8])
def test_parts_have_equal_shares_of_all_envs_and_of_those_of_each_worker(num_workers: int) -> None:
    with Pool(counting(8), backend="serial", num_workers=num_workers) as pool:
        for count in range(1, 9):
            parts = [part.env_ids.tolist() for part in pool.split(count)]
            assert sorted(env for part in parts for env in part) == list(range(8))
            assert all(part == sorted(part) for part in parts)
            for envs in (range(8), *(worker.env_ids for worker in pool.workers)):
                shares = [len(set(part).intersection(envs)) for part in parts]
                assert max(shares) - min(shares) <= 1


def test_a_part_does_not_wait_for_another(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with Pool(gated([gate, None]), num_workers=None) as pool:
        slow, quick = pool.split(2)
        slow.reset()
        quick.reset()
        slow.send([1])
        gate.await_arrival()
        for step in range(1, 5):
            assert quick.step([step]).obs.tolist() == [[1, 1, step, step]]
        assert (slow.pending, quick.pending) == (1, 0)
        quick.send([6])
        gate.open()
        assert slow.recv().obs.tolist() == [[0, 1, 1, 1]]
        assert quick.recv().rewards.tolist() == [6.0]


def test_repeated_splits_stay_fast_while_a_batch_is_held() -> None:
    """A new split may not call the views of all earlier splits, since their number would double each time."""
    with Pool(counting(4), backend="serial", frames=3) as pool:
        held = pool.reset().obs
        for _ in range(64):
            pool.split(2)[0].reset()
        assert held[:, 2].tolist() == [0] * 4


def test_calls_options_and_seeds_of_a_part_reach_only_its_envs() -> None:
    with Pool(counting(4), num_workers=2) as pool:
        first, second = pool.split(2)
        first.set_attr("label", "a")
        second.set_attrs("label", ["b", "c"])
        assert first.get_attr("label") == ["a", "a"]
        assert pool.get_attr("label") == ["a", "b", "a", "c"]
        assert second.apply(lambda env: env.label, env_ids=[3]) == ["c"]
        with pytest.raises(ValueError, match="env_ids"):
            first.get_attr("label", env_ids=[1])
        first.set_reset_options({"level": 1})
        for part in (first, second):
            part.reset(seed=7)
        assert pool.get_attr("last_options") == [{"level": 1}, None] * 2
        assert pool.get_attr("last_seed") == [7, 8, 9, 10]


@pytest.mark.parametrize(("make", "spares"), [(NestedEnv, 0), (TextEnv, 0), (TextEnv, 1)])
def test_parts_and_spares_with_nested_observations_and_objects(make: Callable[[], Any], spares: int) -> None:
    def observations(backend: Any) -> list[Any]:
        with Pool([lambda: make()] * (4 + spares), backend=backend, spares=spares, num_workers=None) as pool:
            parts = pool.split(2)
            seen = [part.reset(seed=1).obs for part in parts]
            for part in parts:
                part.action_space.seed(0)
                for _ in range(5):
                    seen.append(part.step(["a", "b" * 9] if make is TextEnv else part.action_space.sample()).obs)
            return seen

    np.testing.assert_equal(observations("process"), observations("serial"))


# -- misuse --------------------------------------------------------------------------------------------------


def test_a_split_pool_is_used_through_its_parts() -> None:
    with begun(counting(4), backend="serial") as pool:
        first, second = pool.split(2)
        uses: list[Callable[[], Any]] = [
            lambda: pool.step([1] * 4), lambda: pool.send([1], [0]), lambda: pool.recv(),
            lambda: pool.reset(env_ids=[0]), lambda: pool.request_obs(),
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(StateError, match="split"):
                use()
        first.step([1, 1])
        with pytest.raises(ValueError, match=r"distinct ints of \[0, 2\]"):
            first.send([1], second.env_ids[:1])
        with pytest.raises(InvalidActionError):
            first.send([1] * 4)
        (whole,) = pool.split(1)
        assert whole is pool
        assert pool.step([1] * 4).obs[:, 2].tolist() == [2 if i in first.env_ids else 1 for i in range(4)]
        assert second.pending == 0
        with pytest.raises(StateError, match="split"):
            first.step([1, 1])


def test_a_split_into_a_wrong_number_of_parts_or_while_envs_are_in_flight_is_refused() -> None:
    wrong: list[Any] = [0, 5, True, 1.5, "2"]
    with Pool(counting(4), backend="serial") as pool:
        for parts in wrong:
            with pytest.raises(ValueError, match="from 1 to 4"):
                pool.split(parts)
        pool.send_reset()
        with pytest.raises(StateError, match="in flight"):
            pool.split(2)
        pool.recv()
        first, _ = pool.split(2)
        first.send([1, 1])
        with pytest.raises(StateError, match="in flight"):
            pool.split(1)
        first.discard()
        pool.split(1)


def test_parts_keep_their_pool_open_while_they_are_held() -> None:
    pool = Pool(counting(4), num_workers=None)
    workers = pool.workers
    parts = pool.split(2)
    del pool
    collect()
    assert parts[1].reset().env_ids.tolist() == parts[1].env_ids.tolist()
    del parts
    collect()
    assert not any(worker.is_alive() for worker in workers)


# -- faults --------------------------------------------------------------------------------------------------


def halves(pool: Pool) -> tuple[Part, Part]:
    """Returns the part that has env 3, and the other part."""
    first, second = pool.split(2)
    return (first, second) if 3 in first.env_ids else (second, first)


def test_a_fault_is_raised_by_its_own_part_while_both_are_in_flight() -> None:
    with Pool(hooked(4, (3,), step=raise_value_error), num_workers=1) as pool:
        failing, other = halves(pool)
        for _ in range(2):
            for part in (failing, other):
                part.reset()
            for part in (failing, other):
                part.send([1, 1])
            assert len(other.recv()) == 2
            with pytest.raises(EnvError) as raised:
                failing.recv()
            assert raised.value.env_ids == (3,)
        for part in (failing, other):
            part.reset()
        failing.send([1, 1])
        other.send([1, 1])
        other.discard()
        with pytest.raises(EnvError):  # `other.discard()` did not drop the fault
            failing.recv()


def test_a_fault_is_pending_until_its_own_part_receives_it() -> None:
    with Pool(hooked(4, (3,), step=raise_value_error), num_workers=1) as pool:
        failing, other = halves(pool)
        beside = failing.env_ids[failing.env_ids != 3]

        def fail_without_receiving() -> None:
            failing.reset()
            other.reset()
            failing.send([1], [3])
            assert len(other.step([1, 1])) == 2  # the only worker steps env 3 first, so the pool has received its fault
            assert failing.pending == 1

        uses: list[Callable[[], Any]] = [
            lambda: failing.send([1], [3]), lambda: failing.send_reset(env_ids=[3]), lambda: failing.request_obs([3]),
            lambda: failing.step([1], beside), failing.reset, lambda: pool.split(1),
        ]  # fmt: skip
        fail_without_receiving()
        for use in uses:
            with pytest.raises(StateError, match="in flight|env 3; call reset first"):
                use()
        with pytest.raises(EnvError) as raised:
            failing.recv(min_envs=1, timeout=0)
        assert raised.value.env_ids == (3,)
        assert failing.pending == 0
        with pytest.raises(StateError, match="env 3; call reset first"):
            failing.send([1], [3])
        fail_without_receiving()
        failing.discard()
        assert failing.pending == 0
        assert len(failing.reset()) == 2


# -- with spares ---------------------------------------------------------------------------------------------


def test_a_batch_of_all_envs_is_in_order_beside_held_batches_of_parts(tmp_path: Path) -> None:
    """The batches that two parts hold must leave a frame free in both."""
    gate = Gate(tmp_path)
    fns = [*hooked(1, (0,), step=lambda env, action: gate.wait() if action == 5 else None), *counting(4)[1:]]
    with begun(fns, backend="thread", frames=3) as pool:
        first, second = pool.split(2)
        held = [first.reset(), first.step([1, 1])]
        late = [second.reset(), second.step([1, 1])]
        second.send([1, 1])  # both other frames are held now
        late.pop(0)
        held += [*late, second.recv()]
        pool.discard()
        pool.send([5, 6, 7, 8])
        gate.await_arrival()
        pool.call("pid", env_ids=[1, 2, 3])  # the results of these envs arrive first
        gate.open()
        batch = pool.recv()
        assert batch.env_ids.tolist() == [0, 1, 2, 3]
        assert batch.obs.tolist() == [[0, 2, 2, 5], [1, 2, 3, 6], [2, 2, 2, 7], [3, 2, 3, 8]]
