"""worker_info().unique: a number that no other live worker on the machine has."""

from __future__ import annotations

import pickle
import socket
import sys
from typing import Any

import pytest
from pool_envs import CountingEnv
from programs import kill

from remuda import Pool, worker_info
from remuda._worker.unique_number import UniqueNumber


class Numbered(CountingEnv):
    def __init__(self) -> None:
        super().__init__()
        info = worker_info()
        assert info is not None
        self.number = info.unique
        assert pickle.loads(pickle.dumps(info)) == info

    def read(self) -> int:
        info = worker_info()
        return self.number if info is None else info.unique


def numbers_of(pool: Pool) -> set[int]:
    assert pool.call("read") == pool.get_attr("number")
    return set(pool.get_attr("number"))


def is_free(number: int) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(f"\0remuda-unique-{number}")
        except OSError:
            return False
        return True


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_workers_of_all_pools_have_different_numbers(backend: Any) -> None:
    with Pool([Numbered] * 4, num_workers=2, backend=backend) as one, Pool([Numbered] * 3, num_workers=None) as other:
        numbers = one.get_attr("number")
        assert numbers[0] == numbers[1] != numbers[2] == numbers[3]
        assert len(numbers_of(one)) == 2 and len(numbers_of(other)) == 3
        assert numbers_of(one).isdisjoint(numbers_of(other))


def test_a_thread_releases_its_number_at_the_end_of_its_pool() -> None:
    with Pool([Numbered], num_workers=1, backend="thread") as pool:
        (number,) = numbers_of(pool)
        assert not is_free(number)
    assert is_free(number)


def test_a_killed_worker_releases_its_number_and_its_successor_has_one() -> None:
    with Pool([Numbered] * 2, num_workers=2, faults="restart") as pool:
        pool.reset()
        before = pool.get_attr("number")
        kill(pool, 0)
        assert pool.step([0, 0]).truncations.tolist() == [True, False]
        after = pool.get_attr("number")
        assert after[1] == before[1] != after[0]


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_numbers_are_taken_once_and_released(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    held = [UniqueNumber() for _ in range(3)]
    values = [one.value for one in held]
    assert len(set(values)) == 3
    for one in held:
        one.release()
        one.release()
    again = UniqueNumber()
    assert again.value <= max(values)
    again.release()
