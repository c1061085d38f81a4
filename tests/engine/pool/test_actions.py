"""Every form of actions that NumPy converts to arrays reaches the envs with its values, or is refused as a whole.

The expected columns and error messages come from `SpaceCodec.split_batch`.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from old_gymnasium import discrete
from pool_envs import NestedEnv, assert_same_leaf, begun, counting
from programs import kill

from remuda import InvalidActionError, Pool
from remuda._wire.codec import SpaceCodec

N = 3


class KeepingEnv(gymnasium.Env[Any, Any]):
    """An env that keeps its last action."""

    observation_space = spaces.Discrete(2)
    last: Any = None

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        self.last = action
        return 0, 0.0, False, False, {}


def keeping(space: gymnasium.Space[Any]) -> list[Callable[[], KeepingEnv]]:
    return [lambda: KeepingEnv(space)] * N


class Convertible:
    """An object that is no array but can be converted to one."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class Unconvertible:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise ValueError("on another device")


NAN, INF = float("nan"), float("inf")
NUMBERS: list[Any] = [
    [0, 1, 2],
    (0, 1, 2),
    [0, 1, 3],
    [-1, 0, 0],
    [0.0, 1.0, 2.0],
    [0.5, 1, 1],
    [True, False, True],
    [NAN, 0, 0],
    [INF, 0, 0],
    [-0.0, 0, 1],
    [2**63, 0, 1],
    [-(2**63), 0, 1],
    [2**64, 0, 1],
    [1e300, 0, 1],
    [127, 128, 1],
    [255, 256, 1],
    ["0", "1", "2"],
    [None, 0, 1],
    [0j, 1, 1],
    [[0], [1], [2]],
    [[0, 1], [1, 0], [1, 1]],
    [[0, 1], [1], [1]],
    [[[0], [1]], [[1], [0]], [[1], [1]]],
    [],
    "012",
    {0, 1, 2},
    Convertible([0, 1, 2]),
    Unconvertible(),
    np.zeros((N, 2), np.float32)[:, ::-1],
    np.asfortranarray(np.ones((N, 2))),
    np.ma.masked_array([0, 1, 2], [False, True, False]),
    np.array([0, 1, 2], ">i8"),
    np.array([0, 1, 2], ">f4"),
    np.array([0, 1, 2], object),
    np.array([0, 2**62, 1], np.uint64),
    np.array([0, 2**63, 1], np.uint64),
    np.array([1, 2, 3], "m8[s]"),
    np.array([2, 1, 0, 2], np.int8)[::2],
    np.int64(1),
    *(np.array([0, 1, 2], dtype) for dtype in "?bBhHiIqQefdgFDSU"),
    *(np.ones((N, 2), dtype) for dtype in "?bBiIqQefdg"),
]

SPACES: dict[str, gymnasium.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "from -1": spaces.Discrete(3, start=-1),
    "of int8": discrete(3, np.int8),
    "of uint8": discrete(3, np.uint8),
    "of uint64": discrete(3, np.uint64),
    "multi": spaces.MultiDiscrete([2, 3]),
    "multi of int32": spaces.MultiDiscrete([2, 3], dtype=np.int32, start=[0, -1]),
    "multi of uint8": spaces.MultiDiscrete([2, 3], dtype=np.uint8),
    "one multi": spaces.MultiDiscrete([3]),
    "binary": spaces.MultiBinary(2),
    "box": spaces.Box(-1, 1, (2,)),
    "box of nobody": spaces.Box(-1, 1, ()),
    "box of float16": spaces.Box(-1, 1, (2,), np.float16),
    "box of int8": spaces.Box(-100, 100, (), np.int8),
    "box of uint8": spaces.Box(0, 255, (2, 1), np.uint8),
    "box of int64": spaces.Box(-1, 1, (), np.int64),
    "box of uint64": spaces.Box(0, 9, (), np.uint64),
    "box of bool": spaces.Box(0, 1, (), np.bool_),
    "big-endian": spaces.Box(-1, 1, (2,), np.dtype(">f4")),  # type: ignore[arg-type]
}


def expected(space: gymnasium.Space[Any], actions: Any) -> Any:
    """Returns the columns that the actions should arrive as, or the error message that the pool should raise."""
    try:
        return SpaceCodec(space).split_batch(actions, N)[0]
    except InvalidActionError as error:
        return str(error)


def taken(pool: Pool, space: gymnasium.Space[Any], actions: Any) -> Any:
    """Steps with the actions. Returns the columns that the envs received, or the error message."""
    try:
        pool.step(actions)
    except InvalidActionError as error:
        assert pool.pending == 0
        return str(error)
    each = [SpaceCodec(space).flatten(action)[0] for action in pool.get_attr("last")]
    return [np.array(column, column[0].dtype) for column in zip(*each, strict=True)]


def assert_same(got: Any, right: Any, actions: Any) -> None:
    assert type(got) is type(right), (actions, got, right)
    if isinstance(got, str):
        assert got == right
        return
    for a, b in zip(got, right, strict=True):
        assert a.dtype == b.dtype, actions
        np.testing.assert_array_equal(a, b, str(actions))


NEST = NestedEnv().action_space


def nest(push: Any = ((0, 1), (1, 0), (1, 1)), keys: Any = (0, 1, 2), bits: Any = ((0, 1),) * N) -> dict[str, Any]:
    return {"push": push, "keys": (keys, bits)}


NESTS: list[Any] = [
    nest(),
    nest(np.ones((N, 2)), np.zeros(N, np.int32), np.ones((N, 2), bool)),
    nest(keys=[0, 4, 0]),
    nest(bits=[[0, 2]] * N),
    nest(push=[[1, 2, 3]] * N),
    types.MappingProxyType(nest()),
    collections.OrderedDict(reversed(nest().items())),
    collections.defaultdict(int, nest()),
    collections.defaultdict(int, push=[[0, 0]] * N),
    collections.ChainMap({"push": np.zeros((N, 2))}, nest()),
    {**nest(), "more": 1},
    {**nest(), "keys": [np.zeros(N), np.zeros((N, 2))]},
    {**nest(), "keys": np.zeros((2, N))},
    {**nest(), "keys": ((0, 1, 2),)},
    {"push": np.zeros((N, 2))},
    [nest()] * N,
    tuple(nest().values()),
    None,
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("name", [*SPACES, "nested"])
def test_actions_of_every_form_arrive_with_their_values_or_are_refused(name: str) -> None:
    space, forms = (NEST, NESTS) if name == "nested" else (SPACES[name], NUMBERS)
    fits = 0
    with begun(keeping(space), backend="serial") as pool:
        for actions in forms:
            right = expected(space, actions)
            assert_same(taken(pool, space, actions), right, actions)
            fits += not isinstance(right, str)
    assert 0 < fits < len(forms)


def test_the_first_axis_counts_the_envs_and_axes_of_length_1_are_free_within_rows() -> None:
    one, row, choice = spaces.Box(-9, 9, (1,)), spaces.Box(-9, 9, (3,)), spaces.Discrete(9)
    for space, n, right, wrong in (
        (one, 4, [(4,), (4, 1), (4, 1, 1)], [(1, 4), (1, 4, 1), (4, 4), (1,), ()]),
        (choice, 4, [(4,), (4, 1)], [(1, 4), (4, 4)]),
        (row, 4, [(4, 3), (4, 1, 3)], [(12,), (3, 4), (1, 4, 3)]),
        (row, 1, [(1, 3), (1, 1, 3)], [(3,), (3, 1)]),
    ):
        with Pool([lambda space=space: KeepingEnv(space)] * n, backend="serial") as pool:  # type: ignore[misc]
            pool.reset()
            for shape in right:
                actions = np.arange(np.prod(shape), dtype=space.dtype)
                pool.step(actions.reshape(shape))
                assert_same_leaf(np.array(pool.get_attr("last")), actions.reshape(n, *space.shape), "actions")
            for shape in wrong:
                with pytest.raises(InvalidActionError, match="expected an array of shape"):
                    pool.step(np.zeros(shape, space.dtype))


def test_a_refused_action_does_not_change_the_action_in_reports() -> None:
    with begun(keeping(NEST), faults="restart") as pool:
        pool.step(nest())
        with pytest.raises(InvalidActionError):
            pool.step(nest(push=np.zeros((N, 2)), keys=[0, 4, 0]))
        kill(pool, 1)
        pool.request_obs()
        fault = pool.recv(order="slot").infos[1]["fault"]
        np.testing.assert_array_equal(fault.where.action["push"], [1, 0])


def test_an_interrupt_while_actions_are_converted_is_raised() -> None:
    class Interrupting:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise KeyboardInterrupt

    with begun(counting(N), backend="serial") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.step(Interrupting())
        assert pool.step([1] * N).rewards.tolist() == [1.0] * N


@pytest.mark.parametrize("backend", ["process", "serial"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_actions_as_given_keep_their_dtype(shape: tuple[int, ...], backend: Any) -> None:
    with begun(keeping(spaces.Box(-1, 1, shape)), backend=backend, num_workers=1) as pool:
        given = np.linspace(0, 1, N * int(np.prod(shape))).reshape(N, *shape)
        pool.send(given, as_given=True)
        pool.recv()
        assert_same_leaf(np.stack(pool.call("last")), given, "as given")
        pool.send(given[::2], env_ids=[2, 0], as_given=True)
        pool.recv()
        assert_same_leaf(np.stack(pool.call("last")), given[[2, 1, 0]], "some envs")
        pool.step(given)
        assert {last.dtype for last in pool.call("last")} == {np.dtype(np.float32)}
        with pytest.raises(InvalidActionError, match=f"expected .*{N}"):
            pool.send(given[:2], as_given=True)


def test_actions_as_given_keep_their_dtype_after_a_restart() -> None:
    given = np.linspace(0, 1, N)
    with begun(keeping(spaces.Box(-1, 1, ())), num_workers=N, faults="restart") as pool:
        kill(pool, 1)
        pool.send(given, as_given=True)
        assert pool.recv(order="slot").truncations.tolist() == [env == 1 for env in range(N)]
        for _ in range(2):  # the first resets the rebuilt env
            pool.send(given, as_given=True)
            pool.recv()
        assert_same_leaf(np.stack(pool.call("last")), given, "as given")
