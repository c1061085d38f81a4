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
from accidents import kill_myself, raise_value_error
from arena_views import leaves
from drawn import draws
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from hypothesis import given
from hypothesis import strategies as st
from old_gymnasium import FINAL_OBS
from pool_envs import EnvFn, Info, StepResult, assert_same, begun, counting, hooked, with_infos

from remuda import FaultPolicy, Pool

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


def wild_infos(depth: int = 2) -> st.SearchStrategy[dict[Any, Any]]:
    """Draws infos in which a key may have a number once and a dict or another type the next time."""
    values = st.one_of(*NUMBERS, *THINGS, *([wild_infos(depth - 1)] if depth else []))
    return st.dictionaries(st.sampled_from([*KEYS, *ODD_KEYS, 7]), values, max_size=4)


@contextmanager
def info_pool(scripts: Sequence[Any], mode: str, **options: Any) -> Iterator[Pool]:
    fns: list[EnvFn] = [functools.partial(ScriptedInfoEnv, script) for script in scripts]
    with Pool(fns, autoreset=mode, log_advice=False, **{"backend": "serial", "num_workers": None, **options}) as pool:  # type: ignore[arg-type]
        pool.reset()
        yield pool


def no_actions(n: int) -> Any:
    return np.zeros(n, np.int64)


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
            if (stacked := stack_with_gymnasium(list(infos))) is not None:
                assert_same(infos.stack(), stacked, f"step {i}")


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


def stack_with_gymnasium(infos: list[dict[Any, Any]]) -> dict[Any, Any] | None:
    """Returns the infos as Gymnasium stacks them; None if it cannot, as where a key is also the name of a mask."""
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = len(infos)
    stacked: dict[Any, Any] = {}
    if not FINAL_OBS and any("final_obs" in info for info in infos):
        return None
    try:
        for i, info in enumerate(infos):
            stacked = envs._add_info(stacked, info, i)
    except Exception:
        return None
    return stacked


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


# -- stacked arrays ----------------------------------------------------------------------------------------


def ending(tag: int, count: int) -> Info:
    """Returns the statistics of an episode and an array. The info of the first env is empty."""
    n = float(count + tag)
    return {"episode": {"r": n, "l": int(n)}, "pos": np.array([n, n])} if tag else {}


@pytest.fixture
def ending_pool() -> Iterator[Pool]:
    with begun(with_infos(5, ending, length=1000), backend="serial") as pool:
        for _ in range(2):  # all keys have columns by the third step
            pool.step(no_actions(5))
        yield pool


@pytest.mark.parametrize("keep", [lambda array: array, lambda array: array[1:], memoryview, np.from_dlpack])
def test_held_arrays_of_stacked_infos_are_not_overwritten(keep: Any, ending_pool: Pool) -> None:
    held = []
    for _ in range(5):
        stacked = ending_pool.step(no_actions(5)).stack_infos()
        held.append([keep(stacked["episode"]["r"]), keep(stacked["pos"]), keep(stacked["_episode"].view(np.uint8))])
        del stacked
    for i, (returns, positions, has_ended) in enumerate(held):
        assert np.asarray(returns)[-1] == i + 8
        assert np.asarray(positions)[-1].tolist() == [i + 8, i + 8]
        assert np.asarray(has_ended)[-1] == 1


def test_changes_to_stacked_infos_do_not_affect_later_ones(ending_pool: Pool) -> None:
    for n in [3, 2, 2, 5, 3, 3, 3]:
        batch = ending_pool.step(no_actions(n), list(range(n)))
        stacked = batch.stack_infos()
        assert_same(stacked, stack_with_gymnasium(list(batch.infos)))
        assert all(array.flags.writeable and array.flags.owndata for array in leaves(stacked))
        for array in leaves(stacked):
            array[...] = 1
            array.shape = (*array.shape, 1)
            array.flags.writeable = False
        stacked["episode"].clear()
        stacked["more"] = 1


def test_arrays_of_stacked_infos_with_a_weak_reference_end_when_dropped(ending_pool: Pool) -> None:
    ended: list[int] = []
    for i in range(6):
        weakref.finalize(ending_pool.step(no_actions(5)).stack_infos()["episode"]["r"], ended.append, i)
    ending_pool.step(no_actions(5)).stack_infos()
    assert ended == list(range(6))


def test_infos_are_a_sequence() -> None:
    with begun(counting(3), backend="serial") as pool:
        infos = pool.step(no_actions(3)).infos
    assert (len(infos), list(infos), infos[1:], infos[-1]) == (3, [{}] * 3, [{}] * 2, {})
    assert infos.stack() == {}
    assert repr(infos) == "Infos([{}, {}, {}])"
    assert {} in infos
    with pytest.raises(IndexError):
        infos[3]


@pytest.mark.parametrize("own", [False, 0.5])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_fault_keeps_its_type_beside_numbers_that_envs_have_under_its_key(failing: int, own: Any) -> None:
    def step(env: Any, action: Any) -> StepResult:
        if env.tag == failing:
            raise_value_error()
        return env.observe(), 0.0, False, False, {"fault": own}

    with begun(hooked(2, range(2), step=step), backend="serial", faults="restart") as pool:
        infos = pool.step(no_actions(2)).infos
    assert infos.stack()["fault"].tolist() == [info["fault"] for info in infos]
