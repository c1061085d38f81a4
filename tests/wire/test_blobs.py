"""Objects of any size reach the worker and return: through the rings of bytes, or over the socket if they are too
large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arena_views import arenas
from pool_envs import HookedEnv, TextEnv, assert_same, begun

from remuda import Pool


def test_big_and_small_objects_arrive_in_any_order() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.choice([10, 500, 20_000, 64_000, 90_000, 300_000], 120)
    array, fortran = np.arange(2_000_000), np.asfortranarray(np.arange(600_000).reshape(600, 1000))
    data: list[Any] = [rng.bytes(int(size)) for size in sizes]
    data[7:7] = [array, fortran, array[::-7], np.zeros(0), [np.zeros((0, 5)), b""]]
    with begun([TextEnv] * 2, num_workers=1) as pool:
        calls = [pool.call_async("repeat", one) for one in data]
        for call, one in zip(calls, data, strict=True):
            results = call.result()
            for result in results:
                assert_same(result, one)
            if isinstance(one, np.ndarray) and len(one):
                results[0][0] = 1  # the array is writable


@pytest.mark.parametrize("room", [4096, 5000, 1 << 16, 1 << 20])  # 1 << 16 is the default
def test_texts_and_answers_of_any_size_arrive(room: int) -> None:
    rng = np.random.default_rng(2)
    with begun([TextEnv] * 2, num_workers=2, object_bytes=room) as pool:
        for size in (0, 1, 4000, *range(room - 100, room, 12), room, room + 1, 2 * room):
            text = "a" * size
            assert pool.step((text, text)).obs == (text, text)
            blob = rng.bytes(size)
            assert pool.call("repeat", blob) == [blob, blob]


def test_object_bytes_applies_to_each_worker_and_direction() -> None:
    sizes = []
    for room in (1 << 16, 1 << 20):
        with Pool([TextEnv] * 2, num_workers=2, object_bytes=room):
            sizes.append(sum(map(len, arenas())))
    assert sizes[1] - sizes[0] == 2 * 2 * ((1 << 20) - (1 << 16))


def test_both_ends_can_write_much_at_the_same_time() -> None:
    """Neither end may wait until the other end has read."""
    with begun([lambda: TextEnv(times=2)] * 4, num_workers=1) as pool:
        for _ in range(3):
            texts = tuple(chr(97 + i) * 3_000_000 for i in range(4))
            for i in range(4):
                pool.send((texts[i],), env_ids=[i])
            calls = [pool.call_async("repeat", b"z" * 1_000_000) for _ in range(4)]
            got: dict[int, str] = {}
            while pool.pending:
                batch = pool.recv(min_envs=1)
                got |= dict(zip(batch.env_ids.tolist(), batch.obs, strict=True))
            assert got == {i: texts[i] * 2 for i in range(4)}
            assert all(call.result() == [b"z" * 1_000_000] * 4 for call in calls)


def test_big_infos_and_terminal_observations_arrive() -> None:
    def step(env: Any, action: Any) -> Any:
        return env.observe(), 0.0, True, False, {"log": "x" * 100_000, "map": np.full((300, 300), int(action))}

    fns = [lambda: HookedEnv(step=step)] * 3
    with begun(fns, num_workers=1, autoreset="same_step") as pool:
        for i in range(5):
            batch = pool.step([i, i + 1, i + 2])
            assert [info["final_info"]["map"][5, 5] for info in batch.infos] == [i, i + 1, i + 2]
            assert [len(info["final_info"]["log"]) for info in batch.infos] == [100_000] * 3
