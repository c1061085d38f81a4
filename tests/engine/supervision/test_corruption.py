"""Native code of an env that overwrites the pool's shared memory or writes to the worker's socket."""

from __future__ import annotations

from pathlib import Path

import pytest
from accidents import once
from failing import fault_in
from pool_envs import TextEnv, begun, hooked
from wild_envs import WildTextEnv, overwrite_memory, write_to_socket

from remuda import BrokenPoolError, CorruptReplyError, Pool


def test_overwritten_memory_is_raised_as_a_corrupt_reply() -> None:
    with begun(hooked(2, step=overwrite_memory), num_workers=1) as pool:
        with pytest.raises(CorruptReplyError, match="it wrote invalid data, and was killed") as raised:
            pool.step([1, 1])
        assert raised.value.env_ids == (0, 1)
        with pytest.raises(BrokenPoolError):
            pool.step([1, 1])


def test_a_worker_that_overwrote_memory_is_replaced(tmp_path: Path) -> None:
    wild = once(tmp_path / "wild", overwrite_memory, when=lambda env: env.steps == 2)
    with begun(hooked(2, step=wild), num_workers=1, faults="restart") as pool:
        pool.step([1, 1])
        batch = pool.step([2, 2])
        assert (batch.truncations[1], fault_in(batch, 1).kind) == (True, "corrupt")
        pool.reset()
        for i in range(1, 4):
            assert pool.step([i, i]).obs[:, 2:].tolist() == [[i, i]] * 2


def test_a_corrupted_socket_is_raised_as_a_corrupt_reply(tmp_path: Path) -> None:
    marker = str(tmp_path / "wild")
    with begun([TextEnv, lambda: WildTextEnv(marker)]) as pool:
        with pytest.raises(CorruptReplyError, match=r"^worker 1 "):
            pool.step(("a", "x" * 3_000_000))
        assert pool.recv().obs == ("a",)


def test_a_worker_with_a_corrupted_socket_is_replaced(tmp_path: Path) -> None:
    marker, text = str(tmp_path / "wild"), "x" * 3_000_000
    with begun([TextEnv, lambda: WildTextEnv(marker)], faults="restart") as pool:
        batch = pool.step(("a", text))
        assert fault_in(batch, 1).kind == "corrupt"
        pool.step(("a", text))
        assert [len(obs) for obs in pool.step(("a", text)).obs] == [1, 3_000_000]


def test_a_socket_that_is_corrupted_while_envs_are_built() -> None:
    with pytest.raises(CorruptReplyError, match=r"^worker 1 .* in build"):
        Pool(hooked(2, build=write_to_socket))
