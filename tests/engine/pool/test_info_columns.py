"""Infos of numbers through a pool: whatever takes columns, what a caller reads is what the envs have said."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
from accidents import kill_myself
from drawn import draws
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from old_gymnasium import FINAL_OBS, sync_vector_env
from pool_envs import EnvFn, Info, StepResult, assert_same

from remuda import FaultPolicy, Pool

MODES = ("next_step", "same_step")
STEPS = 4  # of a script, which is gone through three times: by the second its columns are there


class TellingEnv(gymnasium.Env[Any, Any]):
    """Tells what a script says, over and over: an info for each step, and whether the episode ends there.

    Like many envs it goes on using what it has told: the dicts change afterwards.
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
        told, ends = self._script[self.count % len(self._script)]
        self.count += 1
        return self._look(), 1.0, ends, False, copy.deepcopy(told)


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
    """What infos are made of: of one kind for each path, as Gymnasium's arrays need it."""
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
    """With a key that is once a number and once a dict, or of another type each time."""
    values = st.one_of(*NUMBERS, *THINGS, *([wild_infos(depth - 1)] if depth else []))
    return st.dictionaries(st.sampled_from([*KEYS, *ODD_KEYS, 7]), values, max_size=4)


@contextmanager
def telling(scripts: Sequence[Any], mode: str, **options: Any) -> Iterator[Pool]:
    fns: list[EnvFn] = [functools.partial(TellingEnv, script) for script in scripts]
    with Pool(fns, autoreset=mode, advise=False, **{"backend": "serial", **options}) as pool:  # type: ignore[arg-type]
        yield pool


def no_actions(n: int) -> Any:
    return np.zeros(n, np.int64)


@pytest.mark.parametrize("mode", MODES)
@given(scripts())
@draws(15)
def test_infos_equal_those_of_gymnasiums_vector_env(mode: str, scripts: list[Any]) -> None:
    theirs = sync_vector_env([functools.partial(TellingEnv, script) for script in scripts], mode)
    theirs.reset()
    with telling(scripts, mode) as pool:
        pool.reset()
        for i in range(3 * STEPS):
            try:
                expected = theirs.step(no_actions(len(scripts)))[4]
            except Exception:  # a mask, say, that is also a key of its own: there is nothing to be equal to
                return
            batch = pool.step(no_actions(len(scripts)))
            assert_same(batch.infos.stack(), expected, f"step {i}")
            assert_same(batch.stack_infos(), expected, f"step {i}")
            for env, (info, alone) in enumerate(zip(batch.list_infos(), batch.infos, strict=True)):
                assert_same(info, alone, f"step {i}, env {env}")
            np.testing.assert_array_equal(batch.done, batch.terminated | batch.truncated)


@pytest.mark.parametrize(
    "info",
    [
        {"a": 1, "_a": True},
        {"_a": True, "a": 1},
        {"d": {"_a": 2.0, "a": 1}},
        {"d": {"a": np.ones(2), "_a": False}},
        {"_d": 1, "d": 2, "a": 1},
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_keys_that_are_masks_of_others(mode: str, info: Info) -> None:
    test_infos_equal_those_of_gymnasiums_vector_env.hypothesis.inner_test(mode, [[(info, False), (info, True)]] * 2)


@pytest.mark.parametrize("mode", [*MODES, "background", "disabled"])
@given(st.lists(st.lists(st.tuples(wild_infos(), st.booleans()), min_size=2, max_size=2), min_size=1, max_size=2))
@draws(12)
def test_each_info_is_what_the_env_has_said(mode: str, scripts: list[Any]) -> None:
    if mode in ("background", "disabled"):
        scripts = [[(info, False) for info, _ in script] for script in scripts]
    twins = [TellingEnv(script) for script in scripts]
    due = [False] * len(twins)
    with telling(scripts, mode) as pool:
        pool.reset()
        for i in range(8):
            expected = [_told(twin, j, due, mode) for j, twin in enumerate(twins)]
            infos = pool.step(no_actions(len(twins))).infos
            assert_same(list(infos), expected, f"step {i}")
            assert_same([infos[j] for j in range(len(twins))], expected, f"step {i}")


def _told(twin: TellingEnv, j: int, due: list[bool], mode: str) -> Info:
    if due[j]:
        due[j] = False
        return twin.reset()[1]
    obs, _, ends, _, info = twin.step(0)
    if not ends:
        return info
    if mode == "same_step":
        return {"final_info": info, "final_obs": obs, **twin.reset()[1]}
    due[j] = True
    return info


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
def test_nothing_of_an_end_is_pickled(obs: Any, space: Any, mode: str) -> None:
    script = [({"lives": 3}, False), ({"episode": EPISODE, "deep": {"er": {"still": True}}}, True)]
    fns = [functools.partial(TellingEnv, script, obs, space)] * 2
    with Pool(fns, autoreset=mode, backend="serial") as pool:  # type: ignore[arg-type]
        pool.reset()
        for _ in range(3 * STEPS):
            pool.step(no_actions(2))
        with nothing_pickled():
            batches = [pool.step(no_actions(2)) for _ in range(3 * STEPS)]
            infos = [list(batch.infos) for batch in batches if batch.terminated.any()]
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
def test_casts_are_numpys(obs: Any) -> None:
    with Pool([functools.partial(TellingEnv, [({}, False)], obs)], backend="serial") as pool:
        batch = pool.reset()
        expected = np.asarray(obs, np.float64).reshape(2).astype(np.float32)
        assert batch.obs.tobytes() == expected.tobytes()


@pytest.mark.skipif(np.__version__.startswith("1.23."), reason="NumPy 1.23 says nothing of casts")
@pytest.mark.parametrize(("obs", "setting"), [(np.array([1e300, 0.0]), "over"), (np.array([1e-42, 0.0]), "under")])
def test_casts_raise_where_numpy_is_told_to(obs: Any, setting: str) -> None:
    raising: Any = {setting: "raise"}
    with (
        Pool([functools.partial(TellingEnv, [({}, False)], obs)], backend="serial") as pool,
        np.errstate(**raising),
        pytest.raises(Exception, match="encountered in cast"),
    ):
        pool.reset()


def test_a_terminal_observation_is_what_the_env_gave_and_not_what_fitted() -> None:
    obs = np.array([0.1, 0.2])
    with Pool([functools.partial(TellingEnv, [({}, True)], obs)], autoreset="same_step", backend="serial") as pool:
        pool.reset()
        for _ in range(3):
            batch = pool.step(no_actions(1))
            assert_same(batch.infos[0]["final_obs"], obs)
            assert_same(batch.final_obs, obs.astype(np.float32)[None])


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
def test_what_is_no_plain_dict_of_numbers_stays_what_it_is(odd: Any, mode: str) -> None:
    plain = {"episode": EPISODE}
    with telling([[(plain, True), (odd, True)]], mode) as pool:
        pool.reset()
        seen = []
        for _ in range(3 * STEPS):
            batch = pool.step(no_actions(1))
            if batch.terminated[0]:
                info = batch.infos[0]
                seen.append(info["final_info"] if mode == "same_step" else {**info})
        top = (lambda info: info) if mode == "same_step" else dict  # infos themselves are dicts, whatever they were
        assert_same(seen[:4], [plain, top(odd)] * 2)


def test_a_dict_that_contains_itself_is_as_before() -> None:
    with telling([[({"a": 1}, False)]], "next_step") as pool:
        pool.reset()
        info: dict[str, Any] = {"x": 1.0}
        info["me"] = info
        pool.apply(_tell, info)
        for _ in range(3):
            told = pool.step(no_actions(1)).infos[0]
            assert told["me"]["me"]["me"]["x"] == 1.0


def _tell(env: TellingEnv, info: Any) -> None:
    env._script = [(info, False)]


def test_new_keys_for_ever_take_no_more_than_there_is() -> None:
    with Pool([CountingKeysEnv] * 2, backend="serial") as pool:
        pool.reset()
        for i in range(1, 1500):
            assert list(pool.step(no_actions(2)).infos) == [{f"key {i}": {"n": i}}] * 2


class CountingKeysEnv(TellingEnv):
    def __init__(self) -> None:
        super().__init__([({}, False)])

    def step(self, action: Any) -> StepResult:
        obs, *rest, _ = super().step(action)
        return obs, *rest, {f"key {self.count}": {"n": self.count}}  # type: ignore[return-value]


# -- deaths ------------------------------------------------------------------------------------------------


class DyingEnv(TellingEnv):
    """Told to by action 1, the first one dies when some of its info is written: with the key that comes last, or in the
    reset that follows the end of its episode. The next one tells other things."""

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
    """A key that kills: its hash is asked when it goes into the env's own dict, and again when it goes into another."""

    def __init__(self) -> None:
        self.asked = 0

    def __hash__(self) -> int:
        self.asked += 1
        if self.asked == 2:
            kill_myself()
        return 7


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_dies_while_it_writes_an_info(mode: str, tmp_path: Path) -> None:
    """What it has written is no part of the row that tells of its end. Its successor has other keys."""
    dying = functools.partial(DyingEnv, tmp_path / "builds", dies_in_reset=mode == "same_step")
    fns: list[EnvFn] = [dying, functools.partial(TellingEnv, [({}, False)])]
    with Pool(fns, autoreset=mode, faults="restart", advise=False) as pool:  # type: ignore[arg-type]
        pool.reset()
        for _ in range(6):
            pool.step(no_actions(2))
        batch = pool.step(np.array([1, 0]))
        while not batch.truncated[0]:  # that step was a reset
            batch = pool.step(np.array([1, 0]))
        info = batch.infos[0]
        if mode == "same_step":
            assert set(info) == {"final_info", "final_obs", "begins"}
            info = info["final_info"]
        assert set(info) == {"fault"}
        told = [pool.step(no_actions(2)).infos[0] for _ in range(6)]
    assert_same([one for one in told if "episode" in one][-1]["other"], {"b": np.float32(2.0)})
    assert not any("mine" in one for one in told)


@pytest.mark.parametrize("options", [{"spares": 2}, {"faults": FaultPolicy(renew_every=1)}], ids=["spares", "renewal"])
def test_an_end_in_a_row_that_another_env_completes(options: Any) -> None:
    """Two envs write one row: each its own columns."""
    script = [({"lives": 3, "episode": EPISODE}, False), ({"lives": 2, "episode": EPISODE}, True)]
    fns: list[EnvFn] = [functools.partial(TellingEnv, script)] * (2 + options.get("spares", 0))
    with Pool(fns, autoreset="same_step", advise=False, **options) as pool:
        pool.reset()
        for i in range(12):
            for info in pool.step(no_actions(2)).infos:
                if i % 2 == 0:
                    assert info == script[0][0]
                else:
                    assert info["final_info"] == script[1][0]
                    assert set(info) == {"final_info", "final_obs", "begins"}


def test_all_arrays_are_apart_so_that_each_can_be_written_into() -> None:
    """As Gymnasium's are, be it that keys come together."""
    ends: Info = {"episode": {"r": 1.0, "l": 2}, "often": 3}
    with telling([[(ends, False), ({"often": 1}, False)], [({"often": 2}, False)] * 2], "next_step") as pool:
        pool.reset()
        for _ in range(3):  # by the third all have columns
            batch = pool.step(no_actions(2))
        stacked, apart = batch.stack_infos(), batch.infos.stack()
    assert_same(stacked, apart)
    assert stacked["_often"].tolist() == [True, True]
    assert stacked["_episode"].tolist() == [True, False]
    for infos in (stacked, apart):
        arrays = [infos["_episode"], infos["_often"], infos["often"], *infos["episode"].values()]
        assert not any(np.shares_memory(one, other) for i, one in enumerate(arrays) for other in arrays[:i])
