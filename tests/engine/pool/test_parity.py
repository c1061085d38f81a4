"""The pool's results equal Gymnasium's SyncVectorEnv, bit for bit: same envs, same seeds, same actions."""

from __future__ import annotations

import decimal
import enum
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import simulator_envs
from gymnasium import spaces
from old_gymnasium import FINAL_OBS, discrete, sync_vector_env
from pairs import each
from pool_envs import CountingEnv, EnvFn, Info, NestedEnv, assert_same, begun, counting, hooked, with_infos

from remuda import Batch, Pool

MODES = ("next_step", "same_step")  # tests/faces/gymnasium compares resets by the caller


def assert_parity(
    env_fns: Sequence[EnvFn],
    steps: int,
    autoreset: Any = "next_step",
    reference_fns: Sequence[EnvFn] | None = None,
    **options: Any,
) -> None:
    """Steps a pool and Gymnasium's SyncVectorEnv with the same seeded actions, and compares their results."""
    reference = sync_vector_env(reference_fns or env_fns, autoreset)
    reference.action_space.seed(11)
    with Pool(env_fns, autoreset=autoreset, log_advice=False, **options) as pool:
        _assert_same_reset(pool.reset(seed=5), reference.reset(seed=5))
        for i in range(steps):
            actions = reference.action_space.sample()
            _assert_same_step(pool.step(actions), reference.step(actions), f"step {i}")
    reference.close()


def _assert_same_step(batch: Batch, expected: Sequence[Any], place: str) -> None:
    obs, reward, terminated, truncated, infos = expected
    assert_same(batch.obs, obs, f"{place}: obs")
    assert_same(batch.rewards, reward, f"{place}: reward")
    assert_same(batch.terminations, terminated, f"{place}: terminated")
    assert_same(batch.truncations, truncated, f"{place}: truncated")
    assert_same(batch.infos.stack(), infos, f"{place}: infos")


def _assert_same_reset(batch: Batch, expected: Sequence[Any]) -> None:
    assert_same(batch.obs, expected[0], "reset: obs")
    assert_same(batch.infos.stack(), expected[1], "reset: infos")
    assert not batch.rewards.any()
    assert not batch.terminations.any()
    assert not batch.truncations.any()


def cartpoles(n: int) -> list[EnvFn]:
    return [lambda: gymnasium.make("CartPole-v1")] * n


def lakes(n: int) -> list[EnvFn]:
    return [lambda: gymnasium.make("FrozenLake-v1", map_name="4x4")] * n


def nested(n: int, reuse: bool = False) -> list[EnvFn]:
    return [(lambda length=i: NestedEnv(5 + length, reuse)) for i in range(n)]  # type: ignore[misc]


ENVS: dict[str, Callable[[int], list[EnvFn]]] = {"cartpole": cartpoles, "frozen_lake": lakes, "nested": nested}


# -- envs x modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("envs", ENVS)
def test_many_steps(envs: str, mode: Any) -> None:
    assert_parity(ENVS[envs](4), 300, mode, backend="serial", num_workers=2)


@pytest.mark.parametrize("mode", MODES)
def test_envs_may_reuse_their_buffers(mode: Any) -> None:
    """The reset would overwrite SyncVectorEnv's terminal observations, so its envs do not reuse buffers here."""
    assert_parity(nested(3, reuse=True), 100, mode, nested(3), backend="serial", num_workers=2)


@pytest.mark.watchdog(900)  # each case starts processes of a simulator
@each(simulator__backend=simulator_envs.PLACES, mode=MODES)
def test_simulators(simulator: str, backend: Any, mode: Any) -> None:
    env_fns = simulator_envs.env_fns(simulator, simulator_envs.num_envs_in_a_process(simulator))
    assert_parity(env_fns, 3 * simulator_envs.STEPS, mode, backend=backend, num_workers=min(2, len(env_fns)))


# -- infos -----------------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Name(str):
    pass


class Whole(int):
    pass


def numbers(tag: int, count: int) -> Info:
    """Returns an info with every kind of number."""
    return {
        "int": count * (-1) ** tag,
        "largest": 2**63 - 1 - tag,
        "smallest": -(2**63) + tag,
        "float": count / 3,
        "special": (float("nan"), float("inf"), -0.0)[count % 3],
        "bool": count % 2 == tag % 2,
        "np_bool": np.bool_(count % 2),
        "complex": complex(count, tag),
        **{np.dtype(t).name: np.dtype(t).type(count % 50) for t in "bBhHiIlLqQefdgFDG"},
        "uint64_max": np.uint64(2**64 - 1),
        "long_long": np.longlong(count),
        "enum": Colour(1 + count % 2),
        "whole": Whole(count),
        "time": np.datetime64(count, "s"),
    }


def arrays(tag: int, count: int) -> Info:
    return {
        "vector": np.arange(3) + count,
        "zero_d": np.array(count * 0.5),
        "empty": np.zeros((0, 2), np.int16),
        "matrix": np.full((2, 3), tag, np.float16),
        "bools": np.array([True, False, bool(count % 2)]),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3) * count),
        "strided": np.arange(10)[:: 2 if tag else -2] + count,
        "swapped": np.arange(3, dtype=">i4") * count,
        "complex_array": np.arange(2) * 1j * count,
        "large": np.full(500, count, np.float32),
        "words": np.array(["one", "three"]),
        "objects": np.array([None, count, "x"], dtype=object),
        "times": np.array([count], dtype="datetime64[D]"),
        "record": np.array([(count, 1.5)], dtype=[("a", "i4"), ("b", "f8")]),
        "matrix_class": np.ma.array([1, 2, count]),
    }


def objects(tag: int, count: int) -> Info:
    return {
        "word": "x" * (count % 5),
        "name": Name("n"),
        "np_str": np.str_(f"s{count}"),
        "bytes": bytes([count % 256]),
        "none": None,
        "list": [tag, [count]],
        "tuple": (tag, count),
        "decimal": decimal.Decimal(count) / 7,
        "huge_in_list": [2**100 + count],
        "ids": frozenset({tag, count}),
        **odd_keys(count),
    }


def odd_keys(count: int) -> Any:
    return {7: count, (1, 2): "a key that is no string"}


def nests(tag: int, count: int) -> Info:
    return {
        "outer": {"inner": {"deep": count, "word": "w"}, "n": np.float32(tag), "empty": {}},
        "empty": {},
        "sometimes": {"there": count} if count % 2 else {"here": count},
    }


def come_and_go(tag: int, count: int) -> Info:
    info: Info = {f"every_{k}": count for k in range(1, 6) if (count + tag) % k == 0}
    if count % 4 == 0:
        info["vector"] = np.full(2, count)
    if count > 10:
        info["late"] = float(count)
    return info


def change_type(tag: int, count: int) -> Info:
    """The first env's value determines the dtype of a key's array. The values of the other envs are cast."""
    i = (tag + count) % 3
    return {
        "number": (count, count + 0.75, count % 2 == 0)[i],
        "float": (float(count), np.float32(count), np.float64(count))[i],
        "int": (count, np.int64(count), np.int8(count % 100))[i],
        "thing": ("word", None, [count])[i],
        "width": (np.arange(2), np.arange(2.0), np.arange(2, dtype=np.uint8))[i] * count,
    }


def change_kind(tag: int, count: int) -> Info:
    """A key has a number in one step and a text or an array in the next, in all envs at once."""
    kinds = [("text", None), (1, 2.5), (np.array([1.0]), np.array([3])), ({"a": 1}, {"b": 2.5})]
    return {"anything": kinds[count % 4][(tag + count) % 2]}


def many_keys(tag: int, count: int) -> Info:
    return {f"key {k}": k + count if k % 3 else np.float32(k) for k in range(100) if (k + count) % 7}


def look_like_masks(tag: int, count: int) -> Info:
    """Keys that have the name of another key's mask."""
    deep: Info = {"d": {"a": np.ones(2), "_a": count > 9, "_b": 2.0, "b": 1}}
    if tag % 2:
        return {"x": count, "_x": count + 1, "__x": 2, **deep}
    return {"_y": 5, "y": count} if count % 2 else {"_lonely": count, **deep}


def reserved(tag: int, count: int) -> Info:
    return {"final_obs": count, "episode": {"final_obs": [1], "r": 1.0}} if count % 2 else {"final_obs": None}


INFOS = [numbers, arrays, objects, nests, come_and_go, change_type, many_keys, look_like_masks]
INFOS += [reserved] if FINAL_OBS else []


@pytest.mark.parametrize(
    ("info", "mode"),
    [*((i, m) for i in INFOS for m in MODES if (i, m) != (reserved, "same_step")), (change_kind, "next_step")],
)
def test_stacked_infos_equal_gymnasiums_in_every_mode(info: Callable[[int, int], Info], mode: Any) -> None:
    assert_parity(with_infos(4, info), 40, mode, backend="serial", num_workers=2)


def test_infos_from_processes() -> None:
    def info(tag: int, count: int) -> Info:
        kinds = numbers, arrays, objects, nests
        return {name: value for kind in kinds for name, value in kind(tag, count).items()}

    assert_parity(with_infos(4, info), 40, "same_step", num_workers=2)


@pytest.mark.parametrize("info", INFOS)
def test_each_info_equals_the_info_of_the_env(info: Callable[[int, int], Info]) -> None:
    with Pool(with_infos(3, info, length=1000), backend="serial") as pool:
        batches = [pool.reset(), *(pool.step([0, 1, 0]) for _ in range(20))]
        for count, batch in enumerate(batches, start=1):
            for tag in range(3):
                assert_same(batch.infos[tag], info(tag, count), f"step {count}: infos[{tag}]")


def test_an_info_may_have_a_huge_int() -> None:
    """Stacked as an array of int, such a number overflows, as in Gymnasium."""
    with Pool(with_infos(2, lambda tag, count: {"n": 10 ** (18 * count)}, length=100), backend="serial") as pool:
        for count, batch in enumerate((pool.reset(), pool.step([0, 0]), pool.step([0, 0])), start=1):
            assert [info["n"] for info in batch.infos] == [10 ** (18 * count)] * 2
        with pytest.raises(OverflowError):
            batch.infos.stack()


def test_the_caller_may_change_an_info() -> None:
    with begun(with_infos(2, arrays, length=1000), backend="serial") as pool:
        batch = pool.step([0, 0])
        batch.infos[0]["vector"][:] = 99
        batch.infos.stack()["vector"][:] = 98
        assert batch.infos[0]["vector"].tolist() == [2, 3, 4]


# -- seeds and options -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 3, [5, None, 7], (1, 2, 3), np.array([4, 5, 6]), np.int64(9)])
def test_seeds_reach_each_env(seed: Any) -> None:
    expected = {
        None: [None, None, None],
        3: [3, 4, 5],
        9: [9, 10, 11],
    }.get(None if seed is None else int(seed) if np.ndim(seed) == 0 else -1)
    with Pool(counting(3), backend="serial") as pool:
        pool.reset(seed=seed)
        assert pool.get_attr("last_seed") == (expected or list(seed))
        assert all(one is None or type(one) is int for one in pool.get_attr("last_seed"))


def test_options_reach_each_env() -> None:
    with Pool(counting(3), backend="serial") as pool:
        options = {"a": [1]}
        pool.reset(options=options)
        received = pool.get_attr("last_options")
        assert received == [options] * 3
        assert len({id(one) for one in (options, *received)}) == 4  # each env may change its own
        pool.reset(options=[{"a": 1}, None, {}])
        assert pool.get_attr("last_options") == [{"a": 1}, None, {}]
        pool.reset(env_ids=[2, 0], options=[{"b": 2}, {"b": 0}], seed=[20, 10])
        assert pool.get_attr("last_options") == [{"b": 0}, None, {"b": 2}]
        assert pool.get_attr("last_seed") == [10, None, 20]
        pool.reset(env_ids=[1], seed=5)
        assert pool.get_attr("last_seed")[1] == 6


# -- what an env may return ------------------------------------------------------------------------------


NUMBERS = [1.5, 2, True, np.float32(0.1), np.int8(3), np.array(2.5), np.bool_(True), np.float64("nan")]
FLAGS = [True, 0, 1.0, np.bool_(True), np.array(False), np.array([True])]


@pytest.mark.parametrize(("reward", "flag"), [*((number, False) for number in NUMBERS), *((0, flag) for flag in FLAGS)])
def test_any_number_is_a_reward_and_any_truth_value_a_flag(reward: Any, flag: Any) -> None:
    fns = hooked(1, (0,), step=lambda env, action: (env.observe(), reward, flag, False, {}))
    assert_parity(fns, 3, backend="serial")


class FixedEnv(CountingEnv):
    """An env with one fixed observation."""

    def __init__(self, space: spaces.Space[Any], value: Any) -> None:
        super().__init__(length=2)
        self.observation_space = space
        self.value = value

    def observe(self) -> Any:
        return self.value


def box(shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    return spaces.Box(-100 if np.dtype(dtype).kind != "u" else 0, 100, shape, dtype)


OBSERVATIONS: list[tuple[spaces.Space[Any], Any]] = [
    (box((), np.float32), 1.5),
    (box((), np.float64), 2),
    (box((), np.float32), np.array(2.5)),
    (box((), np.float16), np.float64(0.1)),
    (box((), np.int8), -3),
    (box((), np.int64), np.int32(-3)),
    (box((), np.uint8), np.array(7, np.uint8)),
    (spaces.Discrete(5), 3),
    (spaces.Discrete(5), True),
    (spaces.Discrete(5), np.uint8(3)),
    (discrete(5, np.int32), 3),
    (spaces.Discrete(5, start=-2), np.array(-1)),
    (box((3,), np.float32), [0.1, 2, 3]),
    (box((3,), np.float32), (0.1, 2, 3)),
    (box((3,), np.float32), np.array([0.1, 2, 3])),
    (box((3,), np.float32), np.array([1, 2, 3])),
    (box((3,), np.float64), np.array([0.1, 2, 3], np.float16)),
    (box((3,), np.int64), np.array([True, False, True])),
    (box((2, 3), np.float32), np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))),
    (box((3,), np.int64), np.arange(6)[::-2]),
    (box((3,), np.int64), np.arange(3, dtype=">i8")),
    (box((3,), np.float64), np.ma.array([1.0, 2.0, 3.0])),
    (spaces.MultiBinary(2), [True, False]),
    (spaces.MultiDiscrete([3, 4]), [2, 3]),
    (box((2,), np.float32), [np.float64(0.1), np.array(0.2)]),
]


@pytest.mark.parametrize(("space", "value"), OBSERVATIONS)
def test_observations_that_need_a_cast(space: spaces.Space[Any], value: Any) -> None:
    assert_parity([lambda: FixedEnv(space, value)] * 2, 4, backend="serial", num_workers=1)
