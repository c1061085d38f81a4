"""Infos with numbers: the caller reads the infos that the envs returned, whether or not their keys have columns."""

from __future__ import annotations

import copy
import functools
import pickle
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from accidents import kill_myself
from arena_views import leaves
from drawn import draws
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from hypothesis import given
from hypothesis import strategies as st
from old_gymnasium import FINAL_OBS, sync_vector_env
from pool_envs import EnvFn, Info, StepResult, assert_same, begun

from remuda import EnvError, EnvProgress, Failure, Fault, FaultPolicy, Infos, Pool, _core
from remuda._engine.batches.infos import InfoColumns, MadeRow, PickledRows
from remuda._wire.info_columns import InfoColumn, InfoField, field_of

MODES = ("next_step", "same_step")
STEPS = 4  # steps of a script; each script runs three times, and its keys have columns by the second


class ScriptedInfoEnv(gymnasium.Env[Any, Any]):
    """Returns the infos and episode ends of a script, over and over.

    Like many envs it changes the returned dicts afterwards.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, script: Sequence[tuple[Info, bool]], obs: Any = None, space: Any = None) -> None:
        self.observation_space = space or spaces.Box(-1e6, 1e6, (2,), np.float32)
        self._script, self._obs, self.count = script, obs, 0

    def _look(self) -> Any:
        return copy.deepcopy(self._obs) if self._obs is not None else np.full(2, self.count, np.float32)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        return self._look(), {"begins": self.count}

    def step(self, action: Any) -> StepResult:
        infos, ends = self._script[self.count % len(self._script)]
        self.count += 1
        return self._look(), 1.0, ends, False, copy.deepcopy(infos)


NUMBERS: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.integers(0, 255).map(np.uint8),
    st.lists(st.floats(), min_size=2, max_size=2).map(np.array),
    st.integers(0, 9).map(np.array),
]
THINGS: list[st.SearchStrategy[Any]] = [st.text(max_size=2), st.none(), st.just([1]), st.just({})]
KEYS = ["a", "b", "a.b", "episode", *FINAL_OBS, "r"]
ODD_KEYS = ["_a", "_b", "final_info", "_final_obs"]


@st.composite
def shapes(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    """Draws the keys of infos and one kind of value for each, because Gymnasium's arrays need one kind per key."""
    shape: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4)):
        is_dict = depth and key != "final_obs" and draw(st.integers(0, 2)) == 0
        kinds = NUMBERS if draw(st.integers(0, 3)) else THINGS
        shape[key] = draw(shapes(depth - 1)) if is_dict else draw(st.sampled_from(kinds))
    return shape


@st.composite
def infos_of(draw: st.DrawFn, shape: dict[str, Any], always: bool = False) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for key, kind in shape.items():
        if always or draw(st.integers(0, 3)):
            info[key] = draw(infos_of(kind, always)) if isinstance(kind, dict) else draw(kind)
    return info


@st.composite
def scripts(draw: st.DrawFn) -> list[list[tuple[Info, bool]]]:
    shape, always = draw(shapes()), draw(st.booleans())
    steps = st.tuples(infos_of(shape, always), st.booleans())
    return draw(st.lists(st.lists(steps, min_size=STEPS, max_size=STEPS), min_size=1, max_size=3))


def wild_infos(depth: int = 2) -> st.SearchStrategy[dict[Any, Any]]:
    """Draws infos in which a key may have a number once and a dict or another type the next time."""
    values = st.one_of(*NUMBERS, *THINGS, *([wild_infos(depth - 1)] if depth else []))
    return st.dictionaries(st.sampled_from([*KEYS, *ODD_KEYS, 7]), values, max_size=4)


@contextmanager
def info_pool(scripts: Sequence[Any], mode: str, **options: Any) -> Iterator[Pool]:
    fns: list[EnvFn] = [functools.partial(ScriptedInfoEnv, script) for script in scripts]
    with Pool(fns, autoreset=mode, log_advice=False, **{"backend": "serial", **options}) as pool:  # type: ignore[arg-type]
        pool.reset()
        yield pool


def no_actions(n: int) -> Any:
    return np.zeros(n, np.int64)


@pytest.mark.parametrize("mode", MODES)
@given(scripts())
@draws(8)
def test_infos_equal_those_of_gymnasiums_vector_env(mode: str, scripts: list[Any]) -> None:
    vector_env = sync_vector_env([functools.partial(ScriptedInfoEnv, script) for script in scripts], mode)
    vector_env.reset()
    with info_pool(scripts, mode) as pool:
        for i in range(3 * STEPS):
            try:
                expected = vector_env.step(no_actions(len(scripts)))[4]
            except Exception:  # for example, if a key is also the name of a mask: there is nothing to compare with
                return
            batch = pool.step(no_actions(len(scripts)))
            assert_same(batch.infos.stack(), expected, f"step {i}")
            assert_same(batch.stack_infos(), expected, f"step {i}")
            for env, (info, alone) in enumerate(zip(batch.list_infos(), batch.infos, strict=True)):
                assert_same(info, alone, f"step {i}, env {env}")
            np.testing.assert_array_equal(batch.dones, batch.terminations | batch.truncations)


@pytest.mark.parametrize("mode", [*MODES, "background", "disabled"])
@given(st.lists(st.lists(st.tuples(wild_infos(), st.booleans()), min_size=2, max_size=2), min_size=1, max_size=2))
@draws(12)
def test_each_info_equals_the_envs_info(mode: str, scripts: list[Any]) -> None:
    if mode in ("background", "disabled"):
        scripts = [[(info, False) for info, _ in script] for script in scripts]
    twins = [ScriptedInfoEnv(script) for script in scripts]
    due = [False] * len(twins)
    with info_pool(scripts, mode) as pool:
        for i in range(10):
            expected = [_expected_info(twin, j, due, mode) for j, twin in enumerate(twins)]
            infos = pool.step(no_actions(len(twins))).infos
            assert_same(list(infos), expected, f"step {i}")
            assert_same([infos[j] for j in range(len(twins))], expected, f"step {i}")


def _expected_info(twin: ScriptedInfoEnv, j: int, due: list[bool], mode: str) -> Info:
    if due[j]:
        due[j] = False
        return twin.reset()[1]
    obs, _, ends, _, info = twin.step(0)
    if not ends:
        return dict(info)  # an info itself is always a plain dict
    if mode == "same_step":
        return {"final_info": info, "final_obs": obs, **twin.reset()[1]}
    due[j] = True
    return dict(info)


EPISODE = {"r": 1.5, "l": 3, "t": 0.25}


@contextmanager
def nothing_pickled() -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something is pickled")

    with pytest.MonkeyPatch.context() as patch:
        for module in (pickle, cloudpickle):
            patch.setattr(module, "dumps", refuse)
            patch.setattr(module, "loads", refuse)
        yield


DISCRETE = spaces.Discrete(10)
DICT = spaces.Dict({"x": spaces.Box(-9, 9, (40,)), "y": spaces.Discrete(3)})
PAIR = spaces.Tuple([spaces.Box(-9, 9, (2,)), spaces.Box(-9, 9, (2,))])
SMALL_DICT = spaces.Dict({"x": DISCRETE, "y": spaces.Box(-9, 9, (2,))})
ENDS = {
    "array": (None, None),
    "float64 for float32": (np.array([0.1, 0.2]), None),
    "int": (3, DISCRETE),
    "NumPy scalar": (np.int64(3), DISCRETE),
    "dict of arrays": ({"x": np.ones(40, np.float32), "y": np.array(2)}, DICT),
    "dict in another order": ({"y": np.array(2), "x": np.ones(40, np.float32)}, DICT),
    "tuple of arrays": ((np.ones(2, np.float32), np.zeros(2, np.float32)), PAIR),
    "dict with an int": ({"x": 3, "y": np.array([0.1, 0.2])}, SMALL_DICT),
}


@pytest.mark.parametrize(("obs", "space"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("mode", MODES)
def test_the_end_of_an_episode_is_not_pickled(obs: Any, space: Any, mode: str) -> None:
    script = [({"lives": 3}, False), ({"episode": EPISODE, "deep": {"er": {"still": True}}}, True)]
    fns = [functools.partial(ScriptedInfoEnv, script, obs, space)] * 2
    with Pool(fns, autoreset=mode, backend="serial") as pool:  # type: ignore[arg-type]
        pool.reset()
        for _ in range(3 * STEPS):
            pool.step(no_actions(2))
        with nothing_pickled():
            batches = [pool.step(no_actions(2)) for _ in range(3 * STEPS)]
            infos = [list(batch.infos) for batch in batches if batch.terminations.any()]
    assert len(infos) == (6 if mode == "same_step" else 4)
    for info in sum(infos, []):
        assert_same(info["final_info"] if mode == "same_step" else info, script[1][0])
        if mode == "same_step" and obs is not None:
            assert_same(info["final_obs"], obs)


@pytest.mark.parametrize(
    "obs",
    [
        np.array([1e300, 0.0]),  # too large: NumPy warns
        np.array([1e-42, 5e-324]),
        np.array([np.nan, -np.inf]),
        np.array([0.1, -0.2])[::-1],
        np.array([[0.1], [0.2]]),
        np.array([0.1, 0.2]).astype(">f8"),
        [0.1, 0.2],
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_observations_are_cast_as_numpy_casts(obs: Any) -> None:
    with Pool([functools.partial(ScriptedInfoEnv, [({}, False)], obs)], backend="serial") as pool:
        batch = pool.reset()
        expected = np.asarray(obs, np.float64).reshape(2).astype(np.float32)
        assert batch.obs.tobytes() == expected.tobytes()


@pytest.mark.skipif(np.__version__.startswith("1.23."), reason="NumPy 1.23 says nothing of casts")
@pytest.mark.parametrize(("obs", "setting"), [(np.array([1e300, 0.0]), "over"), (np.array([1e-42, 0.0]), "under")])
def test_casts_raise_if_numpy_is_set_to_raise(obs: Any, setting: str) -> None:
    raising: Any = {setting: "raise"}
    with (
        Pool([functools.partial(ScriptedInfoEnv, [({}, False)], obs)], backend="serial") as pool,
        np.errstate(**raising),
        pytest.raises(Exception, match="encountered in cast"),
    ):
        pool.reset()


class OwnDict(dict[str, Any]):
    pass


@pytest.mark.parametrize(
    "odd",
    [
        {"episode": OwnDict(EPISODE)},
        {"episode": {"r": 1.0, "note": "x"}},
        {"episode": {"r": 1.0, 7: 2.0}},
        {"episode": {}},
        {"episode": {"r": 1.0, "l": 2**70}},
        {"episode": {"r": np.zeros(100)}},
        {"episode": {"r": {"s": {"t": {}}}}},
        OwnDict(EPISODE),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_an_episode_info_that_is_no_plain_dict_of_numbers_is_unchanged(odd: Any, mode: str) -> None:
    scripts = [[({"episode": EPISODE}, True), (odd, True)]]
    test_each_info_equals_the_envs_info.hypothesis.inner_test(mode, scripts)


def test_an_info_may_contain_itself() -> None:
    info: Info = {"x": 1.0}
    info["me"] = info
    with info_pool([[(info, False)]], "next_step") as pool:
        for _ in range(3):
            infos = pool.step(no_actions(1)).infos[0]
            assert infos["me"]["me"]["me"]["x"] == 1.0


def test_ever_new_keys_do_not_exhaust_the_columns() -> None:
    with info_pool([[({f"key {i}": {"n": i}}, False) for i in range(1500)]] * 2, "next_step") as pool:
        for i in range(1500):
            assert list(pool.step(no_actions(2)).infos) == [{f"key {i}": {"n": i}}] * 2


# -- deaths ------------------------------------------------------------------------------------------------


class DyingEnv(ScriptedInfoEnv):
    """Action 1 kills the worker of the first build while its info is written, or in the reset after the episode. Later
    builds return other keys.
    """

    def __init__(self, builds: Path, dies_in_reset: bool) -> None:
        with builds.open("ab") as file:
            file.write(b".")
        self.life, self._dies_in_reset, self._is_dying = builds.stat().st_size, dies_in_reset, False
        super().__init__([({}, self.life == 1)])

    def reset(self, **arguments: Any) -> tuple[Any, Info]:
        if self._is_dying:
            kill_myself()
        return super().reset(**arguments)

    def step(self, action: Any) -> StepResult:
        obs, *rest, _ = super().step(action)
        info: dict[Any, Any] = {"episode": {"r": float(self.life), "l": self.count}}
        if self.life == 1:
            info["mine"] = {"a": 1.0}
        else:
            info["other"] = {"b": np.float32(2.0)}
        if self.life == 1 and action == 1:
            self._is_dying = self._dies_in_reset
            if not self._is_dying:
                info[Killer()] = 1.0
        return obs, *rest, info  # type: ignore[return-value]


class Killer:
    """A key that kills its process when it is hashed for the second time, in the process of copying its dict."""

    def __init__(self) -> None:
        self.hashes = 0

    def __hash__(self) -> int:
        self.hashes += 1
        if self.hashes == 2:
            kill_myself()
        return 7


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_dies_while_it_writes_an_info(mode: str, tmp_path: Path) -> None:
    """The row of the fault has nothing that the dead worker wrote. Its successor returns other keys."""
    dying = functools.partial(DyingEnv, tmp_path / "builds", dies_in_reset=mode == "same_step")
    fns: list[EnvFn] = [dying, functools.partial(ScriptedInfoEnv, [({}, False)])]
    with Pool(fns, autoreset=mode, faults="restart", log_advice=False) as pool:  # type: ignore[arg-type]
        pool.reset()
        for _ in range(6):
            pool.step(no_actions(2))
        batch = pool.step(np.array([1, 0]))
        while not batch.truncations[0]:  # steps that were autoresets
            batch = pool.step(np.array([1, 0]))
        info = batch.infos[0]
        if mode == "same_step":
            assert set(info) == {"final_info", "final_obs", "begins"}
            info = info["final_info"]
        assert set(info) == {"fault"}
        infos = [pool.step(no_actions(2)).infos[0] for _ in range(6)]
    assert_same([one for one in infos if "episode" in one][-1]["other"], {"b": np.float32(2.0)})
    assert not any("mine" in one for one in infos)


@pytest.mark.parametrize("options", [{"spares": 2}, {"faults": FaultPolicy(renew_every=1)}], ids=["spares", "renewal"])
def test_the_end_of_one_env_and_the_reset_of_another_share_a_row(options: Any) -> None:
    """Two envs write columns of the same row."""
    script = [({"lives": 3, "episode": EPISODE}, False), ({"lives": 2, "episode": EPISODE}, True)]
    fns: list[EnvFn] = [functools.partial(ScriptedInfoEnv, script)] * (2 + options.get("spares", 0))
    with begun(fns, autoreset="same_step", log_advice=False, **options) as pool:
        for i in range(12):
            for info in pool.step(no_actions(2)).infos:
                if i % 2 == 0:
                    assert info == script[0][0]
                else:
                    assert info["final_info"] == script[1][0]
                    assert set(info) == {"final_info", "final_obs", "begins"}


def test_stacked_arrays_do_not_share_memory() -> None:
    """The arrays of one info are separate, as Gymnasium's are, even if its keys arrive together."""
    ends: Info = {"episode": {"r": 1.0, "l": 2}, "often": 3}
    with info_pool([[(ends, False), ({"often": 1}, False)], [({"often": 2}, False)] * 2], "next_step") as pool:
        for _ in range(3):  # all keys have columns by the third step
            batch = pool.step(no_actions(2))
        stacked, apart = batch.stack_infos(), batch.infos.stack()
    assert_same(stacked, apart)
    assert stacked["_often"].tolist() == [True, True]
    assert stacked["_episode"].tolist() == [True, False]
    for infos in (stacked, apart):
        arrays = [infos["_episode"], infos["_often"], infos["often"], *infos["episode"].values()]
        assert not any(np.shares_memory(one, other) for i, one in enumerate(arrays) for other in arrays[:i])


# -- conversion from columns and pickles to dicts, and to stacked arrays ---------------------------------


def pickled(raw: Any) -> PickledRows:
    return PickledRows(raw, lambda nanoseconds: None)


def stack_with_gymnasium(infos: list[dict[Any, Any]]) -> dict[Any, Any]:
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = len(infos)
    stacked: dict[Any, Any] = {}
    for i, info in enumerate(infos):
        stacked = envs._add_info(stacked, info, i)
    return stacked


def a_reader() -> _core.InfoReader:
    """Returns a reader with columns for episode statistics and an array."""
    book, reader = InfoColumns(room=10_000), _core.InfoReader()
    fields = [(("episode", "r"), 1.5), (("episode", "l"), 3), ("pos", np.zeros(2))]
    for column in book.assign([new_field(path, value) for path, value in fields]):
        reader.add(column.path, column.type)
    return reader


def stacked_by(reader: _core.InfoReader, numbers: list[float]) -> dict[str, Any]:
    """Returns the stacked infos of envs that end their episodes with these numbers. The first env has an empty info."""
    values = np.array(numbers)
    mask = np.full(len(values), 7, np.uint64)
    mask[0] = 0
    arrays = [values, values.astype(np.int64), np.stack([values, values], axis=1)]
    return Infos(mask, reader, arrays, pickled({}), lambda row: None).stack()


def expected_of(numbers: list[float]) -> dict[str, Any]:
    infos = [{"episode": {"r": n, "l": int(n)}, "pos": np.array([n, n])} for n in numbers]
    return stack_with_gymnasium([{}, *infos[1:]])


@pytest.mark.parametrize("keep", [lambda array: array, lambda array: array[1:], memoryview, np.from_dlpack])
def test_held_arrays_of_stacked_infos_are_not_overwritten(keep: Any) -> None:
    reader = a_reader()
    held = []
    for i in range(5):
        stacked = stacked_by(reader, [i, i + 1.0, i + 2.0])
        assert_same(stacked, expected_of([i, i + 1.0, i + 2.0]))
        held.append([keep(stacked["episode"]["r"]), keep(stacked["pos"]), keep(stacked["_episode"].view(np.uint8))])
        del stacked
    for i, (returns, positions, has_ended) in enumerate(held):
        assert np.asarray(returns)[-1] == i + 2
        assert np.asarray(positions)[-1].tolist() == [i + 2, i + 2]
        assert np.asarray(has_ended)[-1] == 1


def test_changes_to_stacked_infos_do_not_affect_later_ones() -> None:
    reader = a_reader()
    for n in [3, 2, 2, 5, 3, 3, 3]:
        numbers = [float(i) for i in range(n)]
        stacked = stacked_by(reader, numbers)
        assert_same(stacked, expected_of(numbers))
        assert all(array.flags.writeable and array.flags.owndata for array in leaves(stacked))
        for array in leaves(stacked):
            array[...] = 1
            array.shape = (*array.shape, 1)
            array.flags.writeable = False
        stacked["episode"].clear()
        stacked["more"] = 1


def test_arrays_of_stacked_infos_with_a_weak_reference_end_when_dropped() -> None:
    reader = a_reader()
    ended = []
    for i in range(6):
        weakref.finalize(stacked_by(reader, [1.0, 2.0])["episode"]["r"], ended.append, i)
    stacked_by(reader, [1.0, 2.0])
    assert ended == list(range(6))


def new_field(path: tuple[str, ...] | str, value: Any) -> InfoField:
    field = field_of((path,) if isinstance(path, str) else path, value)
    assert field is not None
    return field


def columns_of(book: InfoColumns, **values: Any) -> list[str]:
    """Returns the keys that get a column. `a__b` stands for "b" in the dict "a"."""
    fields = [new_field(tuple(key.split("__")), value) for key, value in values.items()]
    return ["__".join(column.path) for column in book.assign(fields)]


def test_each_key_gets_one_column_while_there_is_room() -> None:
    book = InfoColumns(room=32)
    assert columns_of(book, a=1, b=2.0) == ["a", "b"]
    assert columns_of(book, a=1) == []
    (vector,) = book.assign([new_field("v", np.zeros(2, np.float32))])
    assert vector == InfoColumn(("v",), np.ndarray, np.dtype(np.float32), (2,), 16)
    assert columns_of(book, w=np.zeros(2)) == []  # only 8 bytes are left
    assert [c.offset for c in book.assign([new_field("x", True), new_field("y", 1)])] == [24]
    assert [c.path for c in book.columns] == [("a",), ("b",), ("v",), ("x",)]
    assert len(columns_of(InfoColumns(room=10_000), **{f"k{i}": i for i in range(100)})) == 64


def test_a_key_with_two_meanings_has_no_second_column() -> None:
    """A key is once a number and once a dict, or it is the mask of another key in Gymnasium's format."""
    assert columns_of(InfoColumns(room=10_000), a=1, a__b=1, b__a=1, b=1) == ["a", "b__a"]
    assert columns_of(InfoColumns(room=10_000), a=1, _a=True, _b=1, b__c=1, c=1) == ["a", "_b", "c"]
    assert columns_of(InfoColumns(room=10_000), a__b=1, a___b=1, a__c=1, _a__b=1) == ["a__b", "a__c"]
    with_dots = [new_field("a.b", 1), new_field(("a", "b"), 1), new_field(("a.b", "c"), 1)]
    assert len(InfoColumns(room=10_000).assign(with_dots)) == 2


TIMES = [np.datetime64(1, "s"), np.timedelta64(1, "s")]


@pytest.mark.parametrize("value", [None, "x", [1], {}, np.array(["a"]), np.array([None]), *TIMES, np.zeros(17)])
def test_values_that_get_no_column(value: Any) -> None:
    assert field_of(("a",), value) is None


def test_mask_bits_of_missing_columns_are_ignored() -> None:
    reader = _core.InfoReader()
    reader.add(("a",), int)
    reader.add(("b",), int)
    infos = Infos(np.array([255, 2], np.uint64), reader, [np.array([7, 8])], pickled({}), None)
    assert list(infos) == [{"a": 7}, {}]
    assert infos.stack()["_a"].tolist() == [True, False]
    assert list(Infos(np.array([255], np.uint64), reader, None, pickled({}), None)) == [{}]


@pytest.mark.parametrize(
    ("mask", "arrays"),
    [
        (np.zeros(2, np.int64), None),
        (np.zeros((2, 1), np.uint64), None),
        (np.zeros(4, np.uint64)[::2], None),
        (np.zeros(2, np.uint64), [np.zeros(3)]),
        (np.zeros(2, np.uint64), [np.zeros(())]),
        (np.zeros(2, np.uint64), [[0.0, 0.0]]),
        (np.zeros(2, np.uint64), [np.zeros((2, 4))[:, ::2]]),
    ],
)
def test_a_reader_checks_the_arrays_and_rows(mask: Any, arrays: Any) -> None:
    reader = _core.InfoReader()
    reader.add(("a",), float)
    for read in (lambda: reader.infos(mask, arrays), lambda: reader.stack(mask, arrays, None)):
        with pytest.raises(TypeError, match="expected"):
            read()
    two_rows = np.zeros(2, np.uint64)
    for read in (lambda: reader.info(two_rows, None, 2), lambda: reader.stack(two_rows, None, {2: None})):
        with pytest.raises(IndexError):
            read()


def test_a_reader_of_one_row_with_a_larger_stride() -> None:
    reader = _core.InfoReader()
    reader.add(("a",), np.ndarray)
    array = np.arange(8.0).reshape(4, 2)[::4]  # the array's stride spans four rows
    assert reader.infos(np.ones(1, np.uint64), [array])[0]["a"].tolist() == [0.0, 1.0]
    assert reader.stack(np.ones(1, np.uint64), [array], None)["a"].tolist() == [[0.0, 1.0]]
    assert reader.stack(np.ones(0, np.uint64), [array[:0]], None) == {}


def test_infos_are_a_sequence() -> None:
    infos = Infos(np.zeros(3, np.uint64), _core.InfoReader(), None, pickled({}), lambda row: None)
    assert (len(infos), list(infos), infos[1:], infos[-1]) == (3, [{}] * 3, [{}] * 2, {})
    assert infos.stack() == {}
    assert repr(infos) == "Infos([{}, {}, {}])"
    assert {} in infos
    with pytest.raises(IndexError):
        infos[3]


def test_a_fault_keeps_its_type_beside_numbers_that_envs_have_under_its_key() -> None:
    error = EnvError([Failure(1, 0, "step", None, "ValueError", "", "")])
    fault = Fault(1, 0, "exception", "step", EnvProgress(1, 0, 1, None, 0), error)
    for own in (False, 0.5):
        for rows in ({0: {"fault": own}, 1: {"fault": fault}}, {0: {"fault": fault}, 1: {"fault": own}}):
            raw = {row: (0, MadeRow([], info), None) for row, info in rows.items()}
            infos = Infos(np.zeros(2, np.uint64), a_reader(), None, pickled(raw), None)
            assert infos.stack()["fault"].tolist() == [info["fault"] for info in rows.values()]
