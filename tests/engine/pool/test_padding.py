"""Batches padded to a fixed number of rows: first the results, then zeros, in reused memory."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pairs import each
from pool_envs import CountingEnv, NestedEnv, TextEnv, counting, gated, make_gates, with_infos
from programs import kill
from vector_envs import plain

from remuda import Batch, ClosedError, Pool, StateError, _core

BACKENDS = ("process", "thread", "serial")


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


def assert_padded(batch: Batch, rows: int, ids: list[int]) -> None:
    """Asserts that the batch has `rows` rows: those of `ids`, then zeros."""
    count = len(ids)
    assert len(batch) == rows
    assert sorted(batch.env_ids[:count].tolist()) == sorted(ids)
    assert batch.env_ids[count:].tolist() == [-1] * (rows - count)
    assert batch.valid.tolist() == [True] * count + [False] * (rows - count)
    for array in (*leaves(batch.obs), batch.reward, batch.terminated, batch.truncated):
        assert len(array) == rows
        assert not array[count:].any()
    assert list(batch.infos)[count:] == [{}] * (rows - count)


@each(backend=BACKENDS, rows=[2, 3, 4, 7, 64])
def test_a_padded_batch_has_pad_to_rows(rows: int, backend: Any) -> None:
    with Pool(counting(4), backend=backend, num_workers=2) as pool:
        pool.reset()
        for i in range(12):
            pool.send([10 * i, 10 * i + 1], env_ids=[3, 1])
            batch = pool.recv(pad_to=rows, order="slot")
            assert_padded(batch, rows, [1, 3])
            assert batch.reward[:2].tolist() == [10 * i + 1, 10 * i]
            assert batch.obs[:2, 3].tolist() == [10 * i + 1, 10 * i]
            assert pool.pending == 0


def test_recv_takes_at_most_pad_to_results(tmp_path: Path) -> None:
    gates = make_gates(tmp_path, 4)
    with Pool(gated(gates), num_workers=4) as pool:
        pool.reset()
        pool.send([1, 2, 3, 4])
        for gate in (gates[2], gates[0]):
            gate.let_pass()
        batch = pool.recv(pad_to=2)  # recv does not wait for the other two results
        assert_padded(batch, 2, [0, 2])
        assert pool.pending == 2
        for gate in (gates[1], gates[3]):
            gate.let_pass()
        assert_padded(pool.recv(pad_to=5), 5, [1, 3])


def test_after_a_timeout_a_batch_may_be_all_padding(tmp_path: Path) -> None:
    (gate,) = make_gates(tmp_path, 1)
    with Pool(gated([gate]), num_workers=1) as pool:
        pool.reset()
        pool.send([1])
        assert_padded(pool.recv(timeout=0, pad_to=3), 3, [])
        gate.let_pass()
        assert_padded(pool.recv(min_envs=1, max_envs=1, timeout=None, pad_to=3), 3, [0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_can_be_padded(backend: Any) -> None:
    with Pool(counting(4), backend=backend, num_workers=2) as pool:
        pool.reset()
        batch = pool.step([7, 8, 9], [3, 0, 2], pad_to=4)
        assert_padded(batch, 4, [0, 2, 3])
        assert (batch.env_ids.tolist(), batch.reward.tolist()) == ([3, 0, 2, -1], [7, 8, 9, 0])
        whole = pool.step([1, 2, 3, 4], pad_to=4)
        assert_padded(whole, 4, [0, 1, 2, 3])
        assert_padded(pool.step([1, 2, 3, 4], pad_to=6), 6, [0, 1, 2, 3])


# -- memory -----------------------------------------------------------------------------------------------


def test_padded_memory_is_reused_unless_it_is_held() -> None:
    with Pool(counting(3), backend="serial", frames=2) as pool:
        pool.reset()
        held, seen = [], set()
        for i in range(6):
            held.append(pool.step([i], [0], pad_to=2))
        assert [batch.reward.tolist() for batch in held] == [[i, 0] for i in range(6)]
        leased = [_core.arena_of(batch.obs) is not None for batch in held]
        assert leased == [True, True] + [False] * 4  # the other batches are copies outside the arena
        for batch in held:
            assert_padded(batch, 2, [0])
        held.clear()
        del batch
        for i in range(10):
            batch = pool.step([i], [0], pad_to=2)
            seen.add(batch.obs.ctypes.data)
            batch.obs[:] = 77  # the caller may write to it
            batch.env_ids[:] = 77
        assert len(seen) <= 2
        assert_padded(pool.step([1], [0], pad_to=2), 2, [0])


def test_a_whole_batch_is_the_frame_itself() -> None:
    with Pool(counting(3), backend="serial") as pool:
        arenas = {getattr(_core.arena_of(pool.reset().obs), "address", None)}
        arenas |= {getattr(_core.arena_of(pool.step([1, 2, 3], pad_to=3).obs), "address", None)}
        assert len(arenas) == 1


@pytest.mark.parametrize("how", ["close", "delete"])
def test_a_padded_batch_outlives_the_pool(how: str) -> None:
    pool = Pool(counting(3), num_workers=1)
    pool.reset()
    batch = pool.step([5], [2], pad_to=2)
    if how == "close":
        pool.close()
    del pool
    assert_padded(batch, 2, [2])
    assert batch.reward.tolist() == [5, 0]


def test_a_copy_of_a_padded_batch_has_the_same_values() -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.reset()
        batch = pool.step([5], [2], pad_to=2)
        arguments = batch.__reduce__()[1]
        assert_padded(Batch(*arguments), 2, [2])
        with pytest.raises(Exception, match="pickle|cannot|can't"):  # no batch can be pickled
            pickle.dumps(batch)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_its_own_copy_of_padded_batches() -> None:
    with Pool(counting(3), num_workers=1, frames=2) as pool:
        pool.reset()
        batches = [pool.step([5 + i], [2], pad_to=2) for i in range(2)]
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.read(read_end, 1)
                os._exit(0 if [batch.reward.tolist() for batch in batches] == [[5, 0], [6, 0]] else 1)
            finally:
                os._exit(99)
        batches.clear()
        for i in range(4):
            pool.step([90 + i], [2], pad_to=2)
        os.write(write_end, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(read_end), os.close(write_end)


# -- with other features ----------------------------------------------------------------------------------


def test_padding_of_nested_observations_terminal_observations_and_infos() -> None:
    with Pool([NestedEnv] * 3, backend="serial", autoreset="same_step") as pool:
        pool.reset(seed=0)
        ended = 0
        for _ in range(30):
            actions = {"push": np.zeros((2, 2)), "keys": (np.zeros(2, int), np.zeros((2, 2), int))}
            batch = pool.step(actions, [2, 1], pad_to=4)
            assert_padded(batch, 4, [1, 2])
            mask = batch.infos.stack()["_total" if batch.final_obs is None else "_final_info"]
            assert len(mask) == 4 and mask[:2].any() and not mask[2:].any()
            if batch.final_obs is not None:
                ended += 1
                assert all(len(leaf) == 4 and not leaf[2:].any() for leaf in leaves(batch.final_obs))
        assert ended > 0


def test_padding_of_infos_without_numbers() -> None:
    with Pool(with_infos(2, lambda tag, count: {"text": f"{tag}.{count}"}), backend="serial") as pool:
        pool.reset()
        batch = pool.step([0], [1], pad_to=3)
        assert list(batch.infos) == [{"text": "1.2"}, {}, {}]


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled", "background"])
def test_padding_in_every_autoreset_mode(autoreset: Any) -> None:
    with Pool(counting(3, length=3), num_workers=2, autoreset=autoreset) as pool:
        pool.send_reset()
        rows = 0
        while rows < 40:
            batch = pool.recv(min_envs=1, pad_to=2)
            count = int(batch.valid.sum())
            assert_padded(batch, 2, batch.env_ids[:count].tolist())
            rows += count
            over = batch.valid & (batch.terminated | batch.truncated)
            going = batch.valid & ~over if autoreset in ("disabled", "background") else batch.valid
            if autoreset == "disabled" and over.any():
                pool.send_reset(env_ids=batch.env_ids[over])
            if going.any():
                pool.send(np.zeros(going.sum(), int), batch.env_ids[going])


def test_padding_with_spares_and_parts() -> None:
    with Pool(counting(6, length=4), spares=2) as pool:
        parts = pool.split(2)
        for part in parts:
            part.send_reset()
        for _ in range(12):
            for part in parts:
                batch = part.recv(pad_to=3)
                assert_padded(batch, 3, part.env_ids.tolist())
                part.send([0, 0], batch.env_ids[batch.valid])


def test_padded_batches_have_whole_vector_envs() -> None:
    with Pool(plain(3, 2), vector_size=2, num_workers=3) as pool:
        pool.send_reset()
        seen = []
        for rows in (3, 5):
            batch = pool.recv(pad_to=rows)
            taken = batch.env_ids[batch.valid].tolist()
            assert_padded(batch, rows, taken)
            assert len(taken) == rows - 1
            seen += taken
        assert sorted(seen) == list(range(6))
        with pytest.raises(ValueError, match=r"pad_to to be at least 2 \(vector_size\), got 1"):
            pool.recv(pad_to=1)


def test_padding_after_a_death() -> None:
    with Pool(counting(4), num_workers=2, faults="restart") as pool:
        pool.reset()
        kill(pool, 0, signal.SIGKILL)
        batch = pool.step([1, 2, 3, 4], pad_to=6)
        assert_padded(batch, 6, [0, 1, 2, 3])
        assert batch.truncated.tolist() == [True, True, False, False, False, False]
        assert "fault" in batch.infos[0]
        assert_padded(pool.step([5, 6], [0, 3], pad_to=3), 3, [0, 3])


# -- refused arguments -----------------------------------------------------------------------------------


def test_wrong_pad_to_is_refused_before_anything_is_sent() -> None:
    with Pool(counting(4), backend="serial") as pool:
        pool.reset()
        with pytest.raises(ValueError, match=r"expected pad_to to be at least 4 \(min_envs\), got 3"):
            pool.step([1, 2, 3, 4], pad_to=3)
        assert pool.pending == 0
        pool.send([1, 2, 3, 4])
        wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"pad_to": 0}, ValueError, r"at least 1 \(an env\), got 0"),
            ({"pad_to": -1}, ValueError, "expected pad_to to be at least 0"),
            ({"pad_to": 2.5}, TypeError, "expected pad_to to be an int or None, got 2.5"),
            ({"pad_to": 2, "min_envs": 3}, ValueError, r"at least 3 \(min_envs\), got 2"),
            ({"pad_to": 2, "max_envs": 3}, ValueError, r"at least 3 \(max_envs\), got 2"),
            ({"pad_to": 2**40}, ValueError, "expected pad_to to be at most 16777216, got 1099511627776"),
        ]
        for arguments, kind, text in wrong:
            with pytest.raises(kind, match=text):
                pool.recv(**arguments)
        assert pool.recv(pad_to=4).reward.tolist() == [1, 2, 3, 4]
        with pytest.raises(StateError, match="got none"):
            pool.recv(pad_to=4)
    with pytest.raises(ClosedError):
        pool.recv(pad_to=4)
    with pytest.raises(ClosedError):
        pool.step([1, 2, 3, 4], pad_to=4)


def test_a_refused_pad_to_takes_no_result() -> None:
    """Zeroing so much memory would make the kernel kill a process. The pool refuses it beforehand."""
    with Pool([Wide] * 2, backend="serial") as pool:
        pool.reset()
        pool.send([1, 2])
        with pytest.raises(MemoryError, match=r"expected \d+ MB of free memory for the pool's batches, got \d+ MB"):
            pool.recv(pad_to=2**24)
        assert pool.recv(pad_to=2).reward.tolist() == [1, 2]


class Wide(CountingEnv):
    def __init__(self) -> None:
        super().__init__(0, 1_000_000)
        self.observation_space = spaces.Box(0, 9, (1 << 17,), np.uint8)

    def observe(self) -> Any:
        return np.zeros(1 << 17, np.uint8)


def test_observations_without_a_fixed_size_have_no_padding() -> None:
    with Pool([TextEnv] * 2, backend="serial") as pool:
        pool.reset()
        with pytest.raises(
            ValueError, match="expected pad_to=None for observations with parts of no fixed size, got 3"
        ):
            pool.step(("a", "b"), pad_to=3)
        assert pool.pending == 0
