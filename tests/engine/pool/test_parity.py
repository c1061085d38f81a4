"""The pool's results equal Gymnasium's SyncVectorEnv, bit for bit: same envs, same seeds, same actions."""

from __future__ import annotations

import copy
import decimal
import enum
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import simulator_envs
from drawn import draws
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from old_gymnasium import HAS_MODES, discrete, sync_vector_env
from pairs import each
from pool_envs import (
    ColourSpace,
    CountingEnv,
    EnvFn,
    Info,
    NestedEnv,
    SampleEnv,
    assert_same,
    begun,
    counting,
    hooked,
    with_infos,
)

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
    options = {"num_workers": None, "log_advice": False, **options}
    with Pool(env_fns, autoreset=autoreset, **options) as pool:
        assert pool.single_observation_space == reference.single_observation_space
        assert pool.single_action_space == reference.single_action_space
        _assert_same_reset(pool.reset(seed=5), reference.reset(seed=5))
        for i in range(steps):
            actions = reference.action_space.sample()
            batch, expected = pool.step(actions), reference.step(actions)
            _assert_same_step(batch, expected, f"step {i}")
            if autoreset == "same_step":
                _assert_final_obs(batch, expected[4], pool.single_observation_space)
    reference.close()


def _assert_same_step(batch: Batch, expected: Sequence[Any], place: str) -> None:
    obs, reward, terminated, truncated, infos = expected
    assert_same(batch.obs, obs, f"{place}: obs")
    assert_same(batch.rewards, reward, f"{place}: reward")
    assert_same(batch.terminations, terminated, f"{place}: terminated")
    assert_same(batch.truncations, truncated, f"{place}: truncated")
    assert_same(batch.infos.stack(), infos, f"{place}: infos")
    assert_same(batch.stack_infos(), infos, f"{place}: infos")
    assert_same(batch.list_infos(), list(batch.infos), f"{place}: infos")
    np.testing.assert_array_equal(batch.dones, terminated | truncated)


def _assert_final_obs(batch: Batch, infos: dict[str, Any], space: spaces.Space[Any]) -> None:
    """Compares `final_obs` with the terminal observations in the infos, which are not cast to the space's dtype."""
    assert (batch.final_obs is None) == ("final_obs" not in infos)
    for i in np.flatnonzero(infos.get("_final_obs", [])).tolist():
        row = list(iterate(batch_space(space, len(batch)), batch.final_obs))[i]
        both = [concatenate(space, [obs], create_empty_array(space)) for obs in (batch.infos[i]["final_obs"], row)]
        assert_same(*both, f"final_obs {i}")


def _assert_same_reset(batch: Batch, expected: Sequence[Any]) -> None:
    assert_same(batch.obs, expected[0], "reset: obs")
    assert_same(batch.infos.stack(), expected[1], "reset: infos")
    assert not batch.rewards.any()
    assert not batch.terminations.any()
    assert not batch.truncations.any()


def nested(n: int, reuse: bool = False) -> list[EnvFn]:
    return [(lambda length=i: NestedEnv(5 + length, reuse)) for i in range(n)]  # type: ignore[misc]


ENVS: dict[str, Callable[[int], list[EnvFn]]] = {
    "cartpole": lambda n: [lambda: gymnasium.make("CartPole-v1")] * n,
    "frozen_lake": lambda n: [lambda: gymnasium.make("FrozenLake-v1", map_name="4x4")] * n,
    "nested": nested,
}


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
    """Returns more numbers than there are columns, and more bytes than the columns of a row hold."""
    return {f"key {k}": k + count if k % 3 else np.full(3, float(k)) for k in range(100) if (k + count) % 7}


def look_like_masks(tag: int, count: int) -> Info:
    """Keys that have the name of another key's mask."""
    deep: Info = {"d": {"a": np.ones(2), "_a": count > 9, "_b": 2.0, "b": 1}}
    if tag % 2:
        return {"x": count, "_x": count + 1, "__x": 2, **deep}
    return {"_y": 5, "y": count} if count % 2 else {"_lonely": count, **deep}


INFOS = [numbers, arrays, objects, change_type, many_keys, look_like_masks]


@pytest.mark.parametrize(
    ("info", "mode"),
    [*((i, m) for i in INFOS for m in MODES), (change_kind, "next_step")],
)
def test_stacked_infos_equal_gymnasiums_in_every_mode(info: Callable[[int, int], Info], mode: Any) -> None:
    assert_parity(with_infos(4, info), 40, mode, backend="serial", num_workers=2)


@pytest.mark.parametrize("info", INFOS)
def test_each_info_equals_the_info_of_the_env(info: Callable[[int, int], Info]) -> None:
    with Pool(with_infos(3, info, length=1000), backend="serial") as pool:
        batches = [pool.reset(), *(pool.step([0, 1, 0]) for _ in range(20))]
        for count, batch in enumerate(batches, start=1):
            for tag in range(3):
                assert_same(batch.infos[tag], info(tag, count), f"step {count}: infos[{tag}]")


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


def test_seeds_and_options_reach_some_envs() -> None:
    with begun(counting(3), backend="serial") as pool:
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
    (box((2,), np.float32), np.array([1e300, np.inf])),  # too large: NumPy warns
    (box((2,), np.float32), np.array([1e-42, 5e-324])),
    (box((2,), np.float32), np.array([np.nan, -0.2], ">f8")[::-1]),
    (box((3,), np.int64), np.array([True, False, True])),
    (box((2, 3), np.float32), np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))),
    (box((3,), np.int64), np.arange(6)[::-2]),
    (box((3,), np.int64), np.arange(3, dtype=">i8")),
    (box((3,), np.float64), np.ma.array([1.0, 2.0, 3.0])),
    (box((2,), ">f4"), [0.5, 3]),
    (box((), ">i8"), np.array(-3, ">i8")),
    (spaces.MultiBinary(2), [True, False]),
    (spaces.MultiDiscrete([3, 4]), [2, 3]),
    (box((2,), np.float32), [np.float64(0.1), np.array(0.2)]),
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize(("space", "value"), OBSERVATIONS)
def test_observations_that_need_a_cast(space: spaces.Space[Any], value: Any) -> None:
    assert_parity([lambda: FixedEnv(space, value)] * 2, 4, backend="serial", num_workers=1)


# -- random spaces ---------------------------------------------------------------------------------------

FLOATS = ["float16", "float32", "float64"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    name = draw(st.sampled_from([*FLOATS, *INTS]))
    dtype: Any = np.dtype(name)
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    low = 0 if name.startswith("u") else draw(st.integers(-100, 100))
    high = low + draw(st.integers(0, 27))
    if name in FLOATS and draw(st.booleans()):
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    return spaces.Box(low, high, shape, dtype)


@st.composite
def discretes(draw: st.DrawFn) -> spaces.Discrete:
    dtype: Any = draw(st.sampled_from([np.int64, np.int64, np.int32, np.int8, np.uint8]))
    start = draw(st.integers(0 if dtype is np.uint8 else -20, 20))
    return discrete(draw(st.integers(1, 100)), dtype, start)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    numbers = draw(st.lists(st.integers(1, 9), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    nvec = np.array(numbers).reshape(shape)
    dtype: Any = draw(st.sampled_from([np.int64, np.int32, np.uint8]))
    start = np.full(shape, draw(st.integers(0, 5)))
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start if draw(st.booleans()) else None)


MULTI_BINARIES = st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=2)).map(
    spaces.MultiBinary
)
ARRAYS = st.one_of(boxes(), discretes(), multi_discretes(), MULTI_BINARIES)


OBJECTS = st.one_of(
    st.builds(spaces.Text, st.integers(1, 12), charset=st.sampled_from(["abc", "äöü😀", "01"])),
    st.builds(
        lambda node, edge: spaces.Graph(node, edge),
        st.sampled_from([spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]),
        st.sampled_from([None, spaces.Box(0, 1, (1,), np.float64), spaces.Discrete(4)]),
    ),
    st.builds(spaces.Sequence, st.sampled_from([spaces.Box(0, 1, (2,)), spaces.Text(3)])),
    st.builds(spaces.Sequence, st.just(spaces.Box(0, 1, (2,))), stack=st.just(True)),
    st.builds(spaces.OneOf, st.just([spaces.Discrete(3), spaces.Box(0, 1, (2,)), spaces.Text(4)])),
    st.builds(ColourSpace),
)

LEAVES = st.one_of(ARRAYS, ARRAYS, OBJECTS)
KEYS = st.text("abcdef_ é", min_size=1, max_size=3)


def _nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.dictionaries(KEYS, children, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
    )


SPACES = st.one_of(LEAVES, st.recursive(LEAVES, _nested, max_leaves=6))


@given(observation=SPACES, action=SPACES, mode=st.sampled_from(MODES if HAS_MODES else MODES[:1]))
@draws(30, suppress_health_check=list(HealthCheck))
def test_random_spaces(observation: spaces.Space[Any], action: spaces.Space[Any], mode: str) -> None:
    assert_parity([lambda: SampleEnv(observation, action)] * 3, 6, mode, backend="serial", num_workers=2)


@given(observation=SPACES, action=SPACES)
@draws(3, suppress_health_check=list(HealthCheck))
def test_random_spaces_of_envs_in_processes(observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    env_fns = [lambda: SampleEnv(observation, action)] * 3
    assert_parity(env_fns, 12, "next_step", num_workers=2)


# -- spaces that only a pool can batch -------------------------------------------------------------------


@pytest.mark.parametrize("space", [spaces.Dict({}), spaces.Tuple(()), spaces.Dict(a=spaces.Tuple(()))])
def test_empty_spaces(space: spaces.Space[Any]) -> None:
    sample = space.sample()
    with Pool([lambda: SampleEnv(space, space)] * 2, backend="serial") as pool:
        assert pool.reset(seed=0).obs == sample
        batch = pool.step(sample)
        assert batch.obs == sample
        assert [info["action"] for info in batch.infos] == [(sample,)] * 2


# -- actions ---------------------------------------------------------------------------------------------


class CollectingEnv(CountingEnv):
    """An env that keeps all its actions, and writes to the array of the second one, as envs may do."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.action_space = action_space
        self.actions: list[Any] = []

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        if isinstance(action, np.ndarray) and len(self.actions) == 2:
            action[:] = 1
        return super().step(0)


@pytest.mark.parametrize("space", [spaces.Discrete(5), spaces.Box(-1, 1, (2,)), spaces.Dict(a=spaces.MultiBinary(3))])
def test_each_action_is_a_separate_object(space: spaces.Space[Any]) -> None:
    fns = [lambda: CollectingEnv(space)] * 2
    reference = SyncVectorEnv(fns)
    reference.action_space.seed(0)
    with begun(fns, backend="serial") as pool:
        reference.reset()
        for _ in range(20):
            actions = reference.action_space.sample()
            given = copy.deepcopy(actions)
            pool.step(actions)
            assert_same(actions, given)  # the env has written to a copy
            reference.step(actions)
        assert_same(pool.get_attr("actions"), list(reference.get_attr("actions")))
