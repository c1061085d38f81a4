"""Vector envs: their slots return the same rows as single envs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from pool_envs import CountingEnv, EnvFn, Info, NestedEnv, TextEnv, assert_same, with_infos
from vector_envs import plain, synced

from remuda import Batch, EnvError, Pool, _core

MODES = ["next_step", "same_step"]  # tests/lives.py compares vector envs without autoreset with single ones


# -- as single envs --------------------------------------------------------------------------------------


def assert_same_batch(actual: Batch, expected: Batch, place: str) -> None:
    for name in ("env_ids", "obs", "rewards", "terminations", "truncations"):
        assert_same(getattr(actual, name), getattr(expected, name), f"{place}: {name}")
    assert_same(list(actual.infos), list(expected.infos), f"{place}: infos")
    assert_same(actual.infos.stack(), expected.infos.stack(), f"{place}: stacked infos")
    assert (actual.final_obs is None) == (expected.final_obs is None), place  # infos have its rows


def ending(num_envs: int) -> list[EnvFn]:
    return [(lambda tag=i: CountingEnv(tag, 2 + tag)) for i in range(num_envs)]  # type: ignore[misc]


def nested(num_envs: int) -> list[EnvFn]:
    return [(lambda length=i: NestedEnv(3 + length)) for i in range(num_envs)]  # type: ignore[misc]


def informed(num_envs: int) -> list[EnvFn]:
    return with_infos(num_envs, _info, length=3)


def _info(tag: int, count: int) -> Info:
    info: Info = {"count": count, "half": count / 2, "even": count % 2 == 0, "row": np.arange(3) * count}
    info["name"] = f"{tag}"
    info["deep"] = {"tag": tag, "deeper": {"small": np.float32(count)}}
    info["flag"] = np.bool_(tag == 1)
    info["maybe"] = None if tag else [count]
    if (tag + count) % 3 == 0:
        info |= {"rare": np.int16(count), "grid": np.ones((2, 2), np.float32) * tag}
    return info


ENVS: dict[str, Callable[[int], list[EnvFn]]] = {
    "counting": ending,
    "nested": nested,
    "informed": informed,
}


@pytest.mark.parametrize(
    ("envs", "num_envs", "size", "mode", "backend"),
    [
        *product(ENVS, [6], [2], MODES, ["serial"]),
        ("nested", 6, 2, "same_step", "process"),
        ("counting", 1, 1, "next_step", "process"),
        ("counting", 4, 4, "next_step", "process"),
    ],
)
def test_slots_of_vector_envs_return_the_rows_of_single_envs(
    envs: str, num_envs: int, size: int, mode: Any, backend: Any
) -> None:
    env_fns = ENVS[envs](num_envs)
    options: dict[str, Any] = {"autoreset": mode, "log_advice": False}
    of_vectors = {"vector_size": size, "backend": backend, "num_workers": min(2, num_envs // size), **options}
    with (
        Pool(synced(env_fns, size, mode), **of_vectors) as vectors,
        Pool(env_fns, backend="serial", **options) as singles,
    ):
        assert_same_batch(vectors.reset(seed=5), singles.reset(seed=5), "reset")
        singles.action_space.seed(3)
        for i in range(40):
            actions = singles.action_space.sample()
            assert_same_batch(vectors.step(actions), singles.step(actions), f"step {i}")


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_vector_envs_with_text_observations(mode: Any) -> None:
    fns: list[EnvFn] = [lambda: TextEnv(2)] * 4
    with Pool(synced(fns, 2, mode), vector_size=2, autoreset=mode, num_workers=None) as pool:
        batch = pool.reset(options={"text": "hello"})
        assert batch.obs == ("hello",) * 4
        for texts in (["a", "b", "c", "d"], ["", "x" * 100_000, "y", "z" * 70_000]):
            batch = pool.step(texts)
            assert batch.obs == tuple(text * 2 for text in texts)
            assert batch.rewards.tolist() == [len(text) for text in texts]


# -- seeds, options, env ids -----------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(plain(3, 2), vector_size=2, num_workers=2, backend="serial") as pool:
        yield pool


def resets_of(pool: Pool) -> list[Any]:
    """Returns the arguments of the last reset of each vector env."""
    return [resets[-1] for resets in pool.get_attr("resets")[::2]]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (7, [{"seed": 7}, {"seed": 9}, {"seed": 11}]),
        (None, [{}, {}, {}]),
        ([5, 6, 6, 5, None, None], [{"seed": 5}, {"seed": [6, 5]}, {}]),
        ([None, 1, 1, None, np.int64(3), 4], [{"seed": [None, 1]}, {"seed": [1, None]}, {"seed": 3}]),
    ],
)
def test_seeds_of_vector_envs(pool: Pool, seed: Any, expected: list[Info]) -> None:
    pool.reset(seed=seed)
    assert_same(resets_of(pool), expected)


def test_options_must_be_equal_for_all_slots_of_a_vector_env(pool: Pool) -> None:
    pool.reset(options={"level": 1})
    assert resets_of(pool) == [{"options": {"level": 1}}] * 3
    masks = [{"mask": np.array([True, i > 2]), "more": [1, {"a": (i // 2,)}]} for i in range(4)]
    with pytest.raises(ValueError, match=r"the same options .* for env 2 .* for env 3"):
        pool.reset(env_ids=range(4), options=masks)
    assert pool.pending == 0
    pool.reset(env_ids=range(4), options=[masks[0], masks[0], None, None])
    assert_same(resets_of(pool)[0]["options"], masks[0])
    assert resets_of(pool)[1] == {}
    pool.reset()
    assert resets_of(pool) == [{}] * 3


@pytest.mark.parametrize("kind", [list, np.array])
@pytest.mark.parametrize(
    ("env_ids", "culprit"),
    [([0], 0), ([1, 2], 1), ([1, 0], 1), ([0, 2, 1, 3], 0), ([0, 1, 3], 3), ([2, 3, 0, 1, 4], 4)],
)
def test_env_ids_must_name_whole_vector_envs(pool: Pool, env_ids: Any, culprit: int, kind: Any) -> None:
    pool.reset()
    env_ids = kind(env_ids)
    wrong = f"whole vector envs.* got env {culprit} in "
    for send in (
        lambda: pool.send(np.zeros(len(env_ids), int), env_ids),
        lambda: pool.send_reset(env_ids=env_ids),
        lambda: pool.request_obs(env_ids),
    ):
        with pytest.raises(ValueError, match=wrong):
            send()
        assert pool.pending == 0
    assert pool.step(np.arange(6)).obs[:, 3].tolist() == list(range(6))


@pytest.mark.parametrize("kind", [list, np.array])
def test_some_vector_envs_in_any_order(pool: Pool, kind: Any) -> None:
    pool.reset()
    pool.send(np.array([10, 11, 12, 13]), kind([4, 5, 0, 1]))
    batch = pool.recv(order="slot")
    assert batch.env_ids.tolist() == [0, 1, 4, 5]
    assert batch.obs[:, 3].tolist() == [12, 13, 10, 11]
    pool.request_obs([2, 3])
    pool.send_reset(env_ids=[4, 5])
    batch = pool.recv(order="slot")
    assert batch.env_ids.tolist() == [2, 3, 4, 5]
    assert batch.obs.tolist() == [[2, 1, 0, -1], [3, 1, 0, -1], [4, 2, 0, -1], [5, 2, 0, -1]]
    assert not batch.rewards.any()


def test_partial_batches_have_whole_vector_envs(pool: Pool) -> None:
    pool.send_reset()
    seen: list[int] = []
    while len(seen) < 6:
        batch = pool.recv(min_envs=1)
        assert len(batch) % 2 == 0
        assert all(batch.env_ids[::2] + 1 == batch.env_ids[1::2])
        seen += batch.env_ids.tolist()
    assert sorted(seen) == list(range(6))
    pool.send_reset()
    pool.recv(min_envs=6, max_envs=4)
    with pytest.raises(ValueError, match="expected max_envs to be a multiple of vector_size=2, or None, got 3"):
        pool.recv(max_envs=3)
    assert len(pool.recv(max_envs=2)) == 2


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_have_whole_vector_envs(parts: int) -> None:
    with Pool(plain(5, 2), vector_size=2, num_workers=2) as pool:
        shares = pool.split(parts)
        assert {2: [[0, 1, 2, 3, 6, 7], [4, 5, 8, 9]]}.get(parts) in (None, [part.env_ids.tolist() for part in shares])
        for part in shares:
            assert part.env_ids[::2].tolist() == (part.env_ids[1::2] - 1).tolist()
            assert not (part.env_ids[::2] % 2).any()
            part.send_reset()
        for _ in range(3):
            for part in shares:
                batch = part.recv()
                assert batch.env_ids.tolist() == part.env_ids.tolist()
                assert _core.arena_of(batch.obs) is not None
                part.send(np.array(part.env_ids))
        batches = [part.recv() for part in shares]
        assert sorted(env for batch in batches for env in batch.obs[:, 3]) == list(range(10))
        with pytest.raises(ValueError, match=r"from 1 to 5 \(the number of vector envs\), got 6"):
            pool.split(6)


# -- calls -----------------------------------------------------------------------------------------------


def test_a_call_runs_once_in_each_vector_env() -> None:
    with Pool(plain(2, 3), vector_size=3, backend="serial") as pool:
        assert pool.call("poke") == [1] * 6
        assert pool.call("poke", env_ids=[1, 5, 2]) == [2, 2, 2]
        assert pool.call_async("poke", 10, env_ids=[4]).result() == [12]
        assert pool.apply(lambda env: env.calls) == [2] * 3 + [12] * 3
        pool.set_attr("calls", 5, env_ids=[3])
        assert pool.get_attr("calls") == [2] * 3 + [5] * 3
        pool.set_attrs("calls", [[1], [1], [1], [2], [2], [2]])
        assert pool.get_attr("calls") == [[1]] * 3 + [[2]] * 3
        with pytest.raises(ValueError, match=r"same arguments for all envs of a vector env, .* env 3 .* env 4"):
            pool.set_attrs("calls", [1, 1, 1, 2, 3, 2])
        pool.reset()
        assert [frame[:, 0].tolist() for frame in pool.render()] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3
        with pytest.raises(EnvError, match="env 3 .*has no attribute 'jump'") as raised:
            pool.call("jump", env_ids=[4])
        assert len(raised.value.failures) == 1


# -- other -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_auto_counts_vector_envs(mode: Any) -> None:
    with Pool(synced(ending(4), 2, mode), vector_size=2, autoreset=mode, num_workers="auto") as pool:
        assert pool.num_workers in (1, 2)
        assert pool.num_envs == 4
