"""Random spaces: a pool and Gymnasium's SyncVectorEnv return the same observations and pass the same actions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn import draws
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from old_gymnasium import HAS_MODES, discrete, needs_dtypes, sync_vector_env
from pool_envs import ColourSpace, CountingEnv, EnvFn, SampleEnv, assert_same, begun, describe_types

from remuda import Batch, Pool

FLOATS = ["float16", "float32", "float64"]
MODES = ["next_step", "same_step"] if HAS_MODES else ["next_step"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


# -- strategies ------------------------------------------------------------------------------------------


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


def multi_binaries() -> st.SearchStrategy[spaces.MultiBinary]:
    return st.one_of(st.integers(1, 5), st.lists(st.integers(1, 3), min_size=1, max_size=2)).map(spaces.MultiBinary)


ARRAYS = st.one_of(boxes(), discretes(), multi_discretes(), multi_binaries())


def _graph(node: spaces.Space[Any], edge: spaces.Space[Any] | None) -> spaces.Graph:
    return spaces.Graph(node, edge)


OBJECTS = st.one_of(
    st.builds(spaces.Text, st.integers(1, 12), charset=st.sampled_from(["abc", "äöü😀", "01"])),
    st.builds(
        _graph,
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


# -- parity ----------------------------------------------------------------------------------------------


def assert_parity(env_fns: Sequence[EnvFn], steps: int, mode: Any, **options: Any) -> None:
    reference = sync_vector_env(env_fns, mode)
    reference.action_space.seed(3)
    with Pool(env_fns, autoreset=mode, log_advice=False, **options) as pool:
        assert pool.single_observation_space == reference.single_observation_space
        assert pool.single_action_space == reference.single_action_space
        assert_same(pool.reset(seed=1).obs, reference.reset(seed=1)[0], "reset")
        for i in range(steps):
            actions = reference.action_space.sample()
            batch, expected = pool.step(actions), reference.step(actions)
            assert_same(batch.obs, expected[0], f"step {i}: obs")
            assert_same(batch.rewards, expected[1], f"step {i}: reward")
            assert_same(batch.infos.stack(), expected[4], f"step {i}: infos")
            _assert_final_obs(batch, expected[4], pool.single_observation_space)


def _assert_final_obs(batch: Batch, infos: dict[str, Any], space: spaces.Space[Any]) -> None:
    """Compares `final_obs` with the terminal observations in the infos, which are not cast to the space's dtype."""
    assert (batch.final_obs is None) == ("final_obs" not in infos)
    for i in np.flatnonzero(infos.get("_final_obs", [])).tolist():
        row = list(iterate(batch_space(space, len(batch)), batch.final_obs))[i]
        both = [concatenate(space, [obs], create_empty_array(space)) for obs in (batch.infos[i]["final_obs"], row)]
        assert_same(*both, f"final_obs {i}")


@given(observation=SPACES, action=SPACES, mode=st.sampled_from(MODES))
@draws(30, suppress_health_check=list(HealthCheck))
def test_serial(observation: spaces.Space[Any], action: spaces.Space[Any], mode: str) -> None:
    assert_parity([lambda: SampleEnv(observation, action)] * 3, 6, mode, backend="serial", num_workers=2)


@given(observation=SPACES, action=SPACES)
@draws(3, suppress_health_check=list(HealthCheck))
def test_processes(observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
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
        self.types: list[str] = []

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.types.append(describe_types(action))
        if isinstance(action, np.ndarray) and len(self.actions) == 2:
            action[:] = 1
        return super().step(0)


@pytest.mark.parametrize(
    ("space", "types"),
    [
        (spaces.Discrete(5), "int64 int64()"),
        pytest.param(discrete(100, np.int32), "int32 int32()", marks=needs_dtypes),
        (spaces.Discrete(200, start=100), "int64 int64()"),
        (spaces.Box(-1, 1, (2,)), "ndarray float32(2,)"),
        (spaces.Box(-1, 1, ()), "float32 float32()"),
        (spaces.MultiBinary(3), "ndarray int8(3,)"),
        (spaces.MultiDiscrete(np.array([[2], [3]])), "ndarray int64(2, 1)"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Text(3))), "tuple(int64 int64(), str)"),
        (spaces.Dict(a=spaces.Box(0, 1, (1,), np.float64)), "dict(a=ndarray float64(1,))"),
    ],
)
def test_each_action_is_a_separate_object(space: spaces.Space[Any], types: str) -> None:
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
        assert pool.get_attr("types") == [[types] * 20] * 2


# -- byte order ------------------------------------------------------------------------------------------


class ForeignEnv(SampleEnv):
    """An env that observes native numbers for big-endian spaces, and returns big-endian arrays in its infos."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"choice": 3, "number": -4}, {"array": np.array([5, 6], ">i8"), "number": 7}

    def step(self, action: Any) -> Any:
        obs = {"choice": np.int64(2), "number": np.array(-3, ">i8")}
        return obs, 0.0, False, False, {"action": (action,), "array": np.array([8, 9], ">i8"), "number": 7}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_numbers_of_another_byte_order_keep_their_values(backend: Any) -> None:
    foreign: Any = np.dtype(">i8")
    observation = spaces.Dict(
        choice=discrete(5, foreign),
        number=spaces.Box(-9, 9, (), foreign),
    )
    action = spaces.Tuple((discrete(5, foreign), spaces.Box(-9, 9, (2,), foreign)))
    with Pool([lambda: ForeignEnv(observation, action)] * 2, backend=backend) as pool:
        for _ in range(2):  # infos arrive in columns the second time
            batch = pool.reset()
            assert {key: obs.tolist() for key, obs in batch.obs.items()} == {"choice": [3, 3], "number": [-4, -4]}
            assert [(info["array"].tolist(), info["number"]) for info in batch.infos] == [([5, 6], 7)] * 2
        for _ in range(2):
            batch = pool.step((np.array([4, 1], foreign), np.array([[1, 2], [3, 4]])))
            assert [obs.tolist() for obs in batch.obs.values()] == [[2, 2], [-3, -3]]
            chosen = [(int(choice), box.tolist()) for info in batch.infos for choice, box in info["action"]]
            assert chosen == [(4, [1, 2]), (1, [3, 4])]
            assert [info["array"].tolist() for info in batch.infos] == [[8, 9]] * 2
