"""Envs that are vectors: their slots read as if each were an env of its own."""

from __future__ import annotations

import gc
import os
import re
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from failing import MODES, assert_cut_off, die, fault_in, final_info, once
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pool_envs import (
    CountingEnv,
    EnvFn,
    Info,
    NestedEnv,
    SampleEnv,
    TextEnv,
    assert_same,
    counting,
    raising,
    telling,
)
from vector_envs import GYMNASIUM_MODES, PlainVector, die_while_sending, plain, synced

from remuda import (
    Batch,
    EnvError,
    EnvTimeoutError,
    FaultPolicy,
    InvalidEnvError,
    Pool,
    RestartLimitError,
    StateError,
    WorkerDiedError,
    _core,
)
from remuda._engine.pool.partition import divide
from remuda._engine.startup.advice import StepCost, advice
from remuda._wire.channel import LocalChannel
from remuda._wire.layout import Layout
from remuda._worker.vector_host import VectorHost
from remuda._worker.vector_infos import VectorInfos
from remuda._worker.worker_info import WorkerInfo

BACKENDS = ("process", "thread", "serial")


# -- as single envs ------------------------------------------------------------------------------------------


class Twins:
    """The same envs in vector envs and singly. What is done to both must look the same."""

    def __init__(self, env_fns: Sequence[EnvFn], size: int, mode: Any, **options: Any) -> None:
        self.size, self.mode = size, mode
        self.vectors = Pool(synced(env_fns, size, mode), vector_size=size, autoreset=mode, advise=False, **options)
        self.singles = Pool(env_fns, backend="serial", autoreset=mode, advise=False)
        self.actions = batch_space(self.singles.single_action_space, len(env_fns))
        self.actions.seed(3)

    def run(self, steps: int) -> None:
        assert_same_batch(self.vectors.reset(seed=5), self.singles.reset(seed=5), "reset")
        for i in range(steps):
            actions = self.actions.sample()
            batch = self.vectors.step(actions)
            assert_same_batch(batch, self.singles.step(actions), f"step {i}")
            over = batch.terminated | batch.truncated
            if self.mode == "disabled" and over.any():
                self._reset(over, f"reset after step {i}")

    def _reset(self, over: Any, where: str) -> None:
        """Gymnasium's vector envs reset those in a mask."""
        masks = over.reshape(-1, self.size)
        ids = np.flatnonzero(np.repeat(masks.any(1), self.size)).tolist()
        options = [{"reset_mask": masks[env // self.size]} for env in ids]
        ours = self.vectors.reset(env_ids=ids, options=options)
        theirs = self.singles.reset(env_ids=np.flatnonzero(over).tolist(), options={})
        mine = dict(zip(ours.env_ids.tolist(), range(len(ours)), strict=True))
        rows = [mine[env] for env in theirs.env_ids.tolist()]
        assert_same(leaves_of(ours.obs, rows), leaves_of(theirs.obs, range(len(theirs))), f"{where}: obs")
        assert_same([ours.infos[row] for row in rows], list(theirs.infos), f"{where}: infos")

    def __enter__(self) -> Twins:
        return self

    def __exit__(self, *_: object) -> None:
        self.vectors.close()
        self.singles.close()


def leaves_of(obs: Any, rows: Any) -> Any:
    if isinstance(obs, dict):
        return {key: leaves_of(value, rows) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(leaves_of(value, rows) for value in obs) if not isinstance(obs[0], str) else [obs[i] for i in rows]
    return obs[list(rows)]


def assert_same_batch(ours: Batch, theirs: Batch, where: str) -> None:
    for name in ("env_ids", "obs", "reward", "terminated", "truncated"):
        assert_same(getattr(ours, name), getattr(theirs, name), f"{where}: {name}")
    assert_same(list(ours.infos), list(theirs.infos), f"{where}: infos")
    assert_same(ours.infos.stack(), theirs.infos.stack(), f"{where}: stacked infos")
    over = np.flatnonzero(theirs.terminated | theirs.truncated)
    assert (ours.final_obs is None) == (theirs.final_obs is None), where
    if theirs.final_obs is not None:
        assert_same(leaves_of(ours.final_obs, over), leaves_of(theirs.final_obs, over), f"{where}: final_obs")


def ending(num_envs: int) -> list[EnvFn]:
    return [(lambda tag=i: CountingEnv(tag, 2 + tag)) for i in range(num_envs)]  # type: ignore[misc]


def nested(num_envs: int) -> list[EnvFn]:
    return [(lambda length=i: NestedEnv(3 + length)) for i in range(num_envs)]  # type: ignore[misc]


def informed(num_envs: int) -> list[EnvFn]:
    return telling(num_envs, _tell, length=3)


def _tell(tag: int, count: int) -> Info:
    info: Info = {
        "count": count,
        "half": count / 2,
        "even": count % 2 == 0,
        "row": np.arange(3) * count,
        "name": f"{tag}",
    }
    info["deep"] = {"tag": tag, "deeper": {"small": np.float32(count)}}
    info["flag"] = np.bool_(tag == 1)
    info["maybe"] = None if tag else [count]
    if (tag + count) % 3 == 0:
        info |= {"rare": np.int16(count), "grid": np.ones((2, 2), np.float32) * tag}
    return info


def sampled(space: spaces.Space[Any]) -> Callable[[int], list[EnvFn]]:
    return lambda num_envs: [lambda: SampleEnv(space, spaces.MultiDiscrete([3, 4]))] * num_envs


ENVS: dict[str, Callable[[int], list[EnvFn]]] = {
    "counting": ending,
    "nested": nested,
    "informed": informed,
    "image": sampled(spaces.Box(0, 255, (4, 3), np.uint8)),
    "number": sampled(spaces.Discrete(9, start=-4)),
}


@pytest.mark.parametrize(
    ("envs", "mode", "num_workers"), [*product(ENVS, MODES, [2]), *product(["nested"], MODES, [1, 3])]
)
def test_slots_read_as_single_envs(envs: str, mode: Any, num_workers: int) -> None:
    with Twins(ENVS[envs](6), 2, mode, num_workers=num_workers) as twins:
        twins.run(40)


@pytest.mark.parametrize(
    ("envs", "mode", "backend"), [*product(ENVS, MODES, ["serial"]), *product(["nested"], MODES, ["thread"])]
)
def test_slots_read_as_single_envs_in_this_process(envs: str, mode: Any, backend: Any) -> None:
    with Twins(ENVS[envs](6), 3, mode, backend=backend) as twins:
        twins.run(60)


@pytest.mark.parametrize("size", [1, 4])
def test_one_vector_env_may_be_all(size: int) -> None:
    with Twins(ending(size), size, "next_step") as twins:
        twins.run(20)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_texts_travel_for_each_slot(mode: Any, backend: Any) -> None:
    fns: list[EnvFn] = [lambda: TextEnv(2)] * 4
    with Pool(synced(fns, 2, mode), vector_size=2, autoreset=mode, backend=backend) as pool:
        batch = pool.reset(options={"text": "hello"})
        assert batch.obs == ("hello",) * 4
        for texts in (["a", "b", "c", "d"], ["", "x" * 100_000, "y", "z" * 70_000]):
            batch = pool.step(texts)
            assert batch.obs == tuple(text * 2 for text in texts)
            assert batch.reward.tolist() == [len(text) for text in texts]


def test_a_box_of_another_float_is_cast() -> None:
    with Pool([lambda: _Wrong(obs=np.ones((2, 4), np.int32))], vector_size=2, backend="serial") as pool:
        pool.reset()
        assert_same(pool.step([0, 0]).obs, np.ones((2, 4), np.int64))


# -- vector envs that are not Gymnasium's ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_like_a_vector_env_will_do(mode: Any, backend: Any) -> None:
    """Arrays that are used again, infos without masks, final observations as a batch."""
    with Pool(plain(2, 3, 2, mode), vector_size=3, autoreset=mode, backend=backend) as pool:
        first = pool.reset()
        assert first.infos[4] == {"count": 0, "half": 0.0, "pair": pytest.approx([1, 0])}
        batch = [pool.step(np.arange(6)) for _ in range(2)][-1]
        assert first.obs[:, 0].tolist() == list(range(6))
        assert batch.terminated.tolist() == [True, False, False] * 2
        assert batch.reward.tolist() == list(range(6))
        if mode == "same_step":
            assert batch.final_obs[[0, 3]].tolist() == [[0, 1, 2, 0], [3, 1, 2, 3]]
            assert batch.obs[[0, 3]].tolist() == [[0, 2, 0, -1], [3, 2, 0, -1]]
            assert_same(batch.infos[3]["final_obs"], np.array([3, 1, 2, 3]))
            assert batch.infos[3]["final_info"] == {}
            assert "final_obs" not in batch.infos[1]
        else:
            assert batch.obs[[0, 3]].tolist() == [[0, 1, 2, 0], [3, 1, 2, 3]]
        assert type(batch.infos[1]["count"]) is int
        assert type(batch.infos[1]["half"]) is float
        assert_same(batch.infos[1]["pair"], np.array([1, 2], np.float32))


def test_numeric_infos_cost_nothing_once_they_have_columns() -> None:
    with Pool(plain(2, 3), vector_size=3) as pool:
        pool.reset()
        pool.step(np.arange(6))
        batch = pool.step(np.arange(6))
        assert [info["count"] for info in batch.infos] == [2] * 6
        assert not batch._lazy  # nothing was pickled


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vector_env_may_keep_the_actions_it_is_given(backend: Any) -> None:
    def keep(env: Any, actions: Any) -> None:
        env.resets.append(actions)

    with Pool(plain(1, 2, step=keep), vector_size=2, backend=backend) as pool:
        pool.reset()
        for i in range(3):
            pool.step([i, i + 10])
        assert_same(pool.get_attr("resets")[0][1:], [np.array([i, i + 10]) for i in range(3)])


def test_the_batch_is_still_a_view_of_a_frame() -> None:
    with Pool(plain(2, 3), vector_size=3) as pool:
        batches = [pool.reset(), *(pool.step(np.arange(6)) for _ in range(2))]
        assert [type(_owner(batch.obs)) for batch in batches] == [_core.Lease] * 3
        assert [batch.obs[0, 2] for batch in batches] == [0, 1, 2]


def _owner(array: Any) -> Any:
    while isinstance(array, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_atari(mode: Any) -> None:
    vector_env = pytest.importorskip("ale_py.vector_env", reason="ale_py has no vector env here")

    def build() -> Any:
        name = GYMNASIUM_MODES[mode]
        return vector_env.AtariVectorEnv("pong", 2, num_threads=1, max_num_frames_per_episode=40, autoreset_mode=name)

    reference = build()
    with Pool([build, build], vector_size=2, autoreset=mode) as pool:
        batch, (obs, infos) = pool.reset(seed=[3, 4, 3, 4]), reference.reset(seed=3)
        for _ in range(25):
            for first in (0, 2):
                assert_same(batch.obs[first : first + 2], obs)
                assert [info["lives"] for info in batch.infos[first : first + 2]] == infos["lives"].tolist()
                if "final_obs" in infos:
                    assert batch.truncated[first : first + 2].all()
                    assert_same(batch.final_obs[first : first + 2], infos["final_obs"])
            actions = reference.action_space.sample()
            batch = pool.step(np.tile(actions, 2))
            obs, reward, _, truncated, infos = reference.step(actions)
            assert batch.reward.tolist() == [*reward, *reward]
            assert batch.truncated.tolist() == [*truncated, *truncated]
            assert (batch.final_obs is None) == ("final_obs" not in infos)


def test_infos_of_a_wrapper() -> None:
    """A dict whose arrays have no masks, but that has one itself."""

    def build() -> Any:
        return RecordEpisodeStatistics(SyncVectorEnv(ending(2)))

    with Pool([build, build], vector_size=2) as pool:
        pool.reset()
        for _ in range(3):
            batch = pool.step([1, 2, 3, 4])
        ends = [info.get("episode") for info in batch.infos]
        assert ends[0] is None
        assert ends[2] is None
        assert (ends[1]["r"], ends[1]["l"]) == (6.0, 3)
        assert (ends[3]["r"], ends[3]["l"]) == (12.0, 3)


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({"a": [1, 2]}, [{"a": 1}, {"a": 2}]),
        ({"a": ("x", None), "_a": np.array([False, True])}, [{}, {"a": None}]),
        ({"a": "all", "b": 7, "c": np.arange(3)}, [{"a": "all", "b": 7, "c": np.arange(3)}] * 2),
        ({"_a": np.array([5, 6])}, [{"_a": 5}, {"_a": 6}]),
        ({"a": np.array([1, 2]), "_a": np.array([3, 4])}, [{"a": 1}, {"a": 2}]),
        ({"a": {"b": np.array([1, 2]), "_b": np.array([True, False])}}, [{"a": {"b": 1}}, {"a": {}}]),
        ({"a": np.array(["x", "y"])}, [{"a": np.str_("x")}, {"a": np.str_("y")}]),
        ({3: np.array([1.5, 2.5])}, [{3: 1.5}, {3: 2.5}]),
    ],
)
def test_what_infos_mean(infos: Info, expected: list[Info]) -> None:
    told = VectorInfos(2, np.zeros(2, np.uint64)).take_apart(infos)
    assert_same(told.rest, expected)


# -- seeds, options, env ids -----------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(plain(3, 2), vector_size=2, num_workers=2) as pool:
        yield pool


def resets_of(pool: Pool) -> list[Any]:
    """What each vector env was last reset with."""
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
def test_seeds(pool: Pool, seed: Any, expected: list[Info]) -> None:
    pool.reset(seed=seed)
    assert_same(resets_of(pool), expected)


def test_options_are_those_of_all_slots(pool: Pool) -> None:
    pool.reset(options={"level": 1})
    assert resets_of(pool) == [{"options": {"level": 1}}] * 3
    masks = [{"mask": np.array([True, i > 2]), "more": [1, {"a": (i // 2,)}]} for i in range(4)]
    with pytest.raises(ValueError, match=r"the same options .* for env 2 .* for env 3"):
        pool.reset(env_ids=range(4), options=masks)
    assert pool.pending == 0
    pool.reset(env_ids=range(4), options=[masks[0], masks[0], None, None])
    assert_same(resets_of(pool)[0]["options"], masks[0])
    assert resets_of(pool)[1] == {}


@pytest.mark.parametrize("kind", [list, np.array])
@pytest.mark.parametrize(
    ("env_ids", "culprit"),
    [([0], 0), ([1, 2], 1), ([1, 0], 1), ([0, 2, 1, 3], 0), ([0, 1, 3], 3), ([2, 3, 0, 1, 4], 4)],
)
def test_env_ids_name_whole_vector_envs(pool: Pool, env_ids: Any, culprit: int, kind: Any) -> None:
    pool.reset()
    env_ids = kind(env_ids)
    wrong = f"whole vector envs.* got env {culprit} in "
    for send in (
        lambda: pool.send(np.zeros(len(env_ids), int), env_ids),
        lambda: pool.send_reset(env_ids=env_ids),
        lambda: pool.send_observe(env_ids),
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
    pool.send_observe([2, 3])
    pool.send_reset(env_ids=[4, 5])
    batch = pool.recv(order="slot")
    assert batch.env_ids.tolist() == [2, 3, 4, 5]
    assert batch.obs.tolist() == [[2, 1, 0, -1], [3, 1, 0, -1], [4, 2, 0, -1], [5, 2, 0, -1]]
    assert not batch.reward.any()


def test_the_first_to_arrive_come_whole(pool: Pool) -> None:
    pool.send_reset()
    seen: list[int] = []
    while len(seen) < 6:
        batch = pool.recv(min_envs=1)
        assert len(batch) % 2 == 0
        assert all(batch.env_ids[::2] + 1 == batch.env_ids[1::2])
        seen += batch.env_ids.tolist()
    assert sorted(seen) == list(range(6))


def test_a_limit_is_of_whole_vector_envs(pool: Pool) -> None:
    pool.send_reset()
    pool.recv(min_envs=6, max_envs=4)
    with pytest.raises(ValueError, match="expected max_envs to be a multiple of vector_size=2, or None, got 3"):
        pool.recv(max_envs=3)
    assert len(pool.recv(max_envs=2)) == 2


def test_options_for_resets_that_nobody_asks_for_are_refused(pool: Pool) -> None:
    with pytest.raises(ValueError, match="vector_size=2: vector envs reset theirs by themselves"):
        pool.set_reset_options({"level": 1})
    pool.reset()
    assert resets_of(pool) == [{}] * 3


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_are_of_whole_vector_envs(parts: int) -> None:
    with Pool(plain(5, 2), vector_size=2, num_workers=2) as pool:
        shares = pool.split(parts)
        for part in shares:
            assert part.env_ids[::2].tolist() == (part.env_ids[1::2] - 1).tolist()
            assert not (part.env_ids[::2] % 2).any()
            part.send_reset()
        for _ in range(3):
            for part in shares:
                batch = part.recv()
                assert batch.env_ids.tolist() == part.env_ids.tolist()
                assert type(_owner(batch.obs)) is _core.Lease
                part.send(np.array(part.env_ids))
        batches = [part.recv() for part in shares]
        assert sorted(env for batch in batches for env in batch.obs[:, 3]) == list(range(10))
        with pytest.raises(ValueError, match=r"from 1 to 5 \(the number of vector envs\), got 6"):
            pool.split(6)


def test_a_division_keeps_vectors_whole() -> None:
    assert divide([0] * 6 + [1] * 3, 2, 3) == [[0, 1, 2, 6, 7, 8], [3, 4, 5]]


# -- calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_vector_env_is_asked_once(backend: Any) -> None:
    with Pool(plain(2, 3), vector_size=3, backend=backend) as pool:
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


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vector_size": 0}, "expected vector_size to be an int from 1 up, or None, got 0"),
        ({"vector_size": True}, "got True"),
        ({"vector_size": "2"}, "got '2'"),
        ({"spares": 1, "num_workers": 2}, "expected spares=0 with vector_size=2, got 1"),
        ({"autoreset": "background"}, "expected autoreset='next_step', .* got 'background'"),
        ({"faults": FaultPolicy(renew_every=3)}, "expected renew_every=None .* got 3"),
        ({"record": "crashes"}, "expected record=None with vector_size=2"),
        ({"faults": "restart", "backend": "thread"}, "expected backend='process' .* faults='restart', got 'thread'"),
        ({"faults": "restart", "backend": "serial"}, "got 'serial'"),
        ({"seeding": "per_episode"}, "expected seeding='gymnasium' with vector_size=2, got 'per_episode'"),
        ({"num_workers": 3}, r"from 1 to 2 \(the number of vector envs\), got 3"),
    ],
)
def test_what_goes_together(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        Pool(plain(2, 2), **{"vector_size": 2, **options})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("size", "env_fn", "message"),
    [
        (2, lambda: CountingEnv(), r"env_fns\[1\] to return a gymnasium.vector.VectorEnv .* omit vector_size"),
        (2, lambda: PlainVector(3), r"env_fns\[1\] .* of vector_size=2 envs, got one of 3"),
        (2, lambda: None, r"env_fns\[1\] .*, got None \(it has no reset, step, close, num_envs"),
        (2, lambda: PlainVector, r"env_fns\[1\] .*PlainVector.* \(it has no num_envs, single_observation_space"),
        (None, lambda: PlainVector(3), r"env_fns\[1\] to return a gymnasium.Env, .* pass vector_size=3"),
        (None, lambda: SyncVectorEnv(counting(3)), "pass vector_size=3"),
    ],
)
def test_what_factories_must_return(size: int | None, env_fn: EnvFn, message: str, backend: Any) -> None:
    good: EnvFn = CountingEnv if size is None else lambda: PlainVector(2)
    with pytest.raises(InvalidEnvError, match=message):
        Pool([good, env_fn], vector_size=size, backend=backend)


def test_spaces_must_be_spaces() -> None:
    def build() -> Any:
        env = PlainVector(2)
        env.single_action_space = 7  # type: ignore[assignment]
        return env

    with pytest.raises(InvalidEnvError, match="whose single_action_space is a gymnasium.Space, got 7"):
        Pool([build], vector_size=2)


def test_each_factory_builds_its_own() -> None:
    env = PlainVector(2)
    with pytest.raises(InvalidEnvError, match=r"env_fns\[1\] to build an env of its own, .* as env_fns\[0\]"):
        Pool([lambda: env] * 2, vector_size=2, backend="serial")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_the_autoreset_of_a_vector_env_must_be_the_pools(mode: Any, backend: Any) -> None:
    other = MODES[MODES.index(mode) - 1]
    fns = [*synced(counting(2), 2, mode), *synced(counting(2), 2, other)]
    with pytest.raises(ValueError, match=rf"autoreset='{mode}', got .* of env_fns\[1\]; pass autoreset='{other}'"):
        Pool(fns, vector_size=2, autoreset=mode, backend=backend)


# -- what a vector env must not do -------------------------------------------------------------------------------


class _Wrong(PlainVector):
    """Returns a step of which something is as it says here."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(2)
        self.wrong = wrong

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, infos = super().step(actions)
        names = {"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated, "infos": infos}
        return tuple({**names, **self.wrong}.values())[: self.wrong.get("length", 5)]


WRONG: list[tuple[Info, str]] = [
    (
        {"obs": np.zeros((3, 4), np.int64)},
        r"expected an array of shape \(2, 4\) and dtype int64 at obs, got .*\(3, 4\)",
    ),
    ({"obs": np.full((2, 4), 0.5)}, "dtype int64 at obs, got .* dtype float64"),
    ({"reward": np.zeros(3)}, r"shape \(2,\) and dtype float64 at rewards"),
    ({"reward": None}, "at rewards, got NoneType: None"),
    ({"terminated": np.array([0, 2])}, "dtype bool at terminations"),
    ({"truncated": False}, "at truncations, got bool: False"),
    ({"infos": [{}, {}]}, "expected a dict as the infos, got"),
    ({"length": 4}, r"expected step\(\) to return \(observations, rewards, .*, got \("),
    ({"infos": {"lock": np.array([None, (i for i in range(3))], object)}}, "that can be pickled"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_a_vector_env_must_not_return(wrong: Info, message: str) -> None:
    with Pool([lambda: _Wrong(**wrong), lambda: PlainVector(2)], vector_size=2, backend="thread") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=message) as raised:
            pool.step([1, 2, 3, 4])
        assert raised.value.env_ids == (0, 1)
        assert pool.recv().env_ids.tolist() == [2, 3]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_rows_are_untouched_where_a_hook_raises(wrong: Info, message: str) -> None:
    space = spaces.Box(-(2**40), 2**40, (4,), np.int64)
    layout = Layout((2,), 1, "same_step", space, spaces.Discrete(1000), vector_size=2)
    arena = _core.Arena.create(layout.plan.bytes)
    host = VectorHost(WorkerInfo(0, 1, (0, 1)), LocalChannel.pair()[1], 2, rebuilds=False)
    host.build([lambda: _Wrong(**wrong)])
    host.start(layout, arena)
    places: list[Any] = [*layout.fixed_columns(arena), *layout.obs_columns(arena), *layout.final_columns(arena)]
    host.reset_vector(0, 2, None)
    before = [place.view(layout.plan.rows).copy() for place in places]
    with pytest.raises((TypeError, ValueError), match=message):
        host.step_vector(0, 2, 0, None)
    assert_same([place.view(layout.plan.rows) for place in places], before)
    host.close_quietly()
    del arena, places, host
    gc.collect()


def test_same_step_autoreset_must_tell_of_the_end() -> None:
    def forget(env: PlainVector, _: Any) -> Any:
        return env.obs, np.zeros(2), np.ones(2, bool), np.zeros(2, bool), {}

    with Pool(plain(1, 2, step=forget), vector_size=2, autoreset="same_step") as pool:
        pool.reset()
        with pytest.raises(EnvError, match="expected 'final_obs' in the infos"):
            pool.step([0, 0])


# -- faults: raise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_an_exception_is_that_of_all_its_slots(mode: Any, backend: Any, tmp_path: Path) -> None:
    step = once(tmp_path / "step", raising(lambda: ValueError("broken")))
    with Pool(plain(2, 3, mode=mode, step=step), vector_size=3, autoreset=mode, backend=backend) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="broken") as raised:
            pool.step(np.arange(6))
        assert raised.value.env_ids == (0, 1, 2)
        assert {failure.operation for failure in raised.value.failures} == {"step"}
        assert pool.recv().env_ids.tolist() == [3, 4, 5]
        with pytest.raises(StateError, match="got envs 0-2; call reset first"):
            pool.step(np.arange(6))
        pool.reset(env_ids=[0, 1, 2])
        assert pool.step(np.arange(6)).obs[:, 2].tolist() == [1, 1, 1, 2, 2, 2]


def test_an_exception_is_told_once_for_all_its_slots() -> None:
    step = raising(lambda: ValueError("broken"))
    with Pool(plain(2, 100, step=step), vector_size=100, backend="serial") as pool:
        pool.reset()
        with pytest.raises(EnvError) as raised:
            pool.step(np.zeros(200, int))
        assert len(raised.value.failures) == 100
        assert str(raised.value).count("broken") == 1
        assert re.search("env 0 .*; and with them, of the same vector envs, envs 1-99$", str(raised.value))


def test_an_exception_in_a_reset(tmp_path: Path) -> None:
    reset = once(tmp_path / "reset", raising(lambda: ValueError("broken")))
    with Pool(plain(2, 2, reset=reset), vector_size=2, num_workers=1) as pool:
        with pytest.raises(EnvError, match="raised ValueError in reset: broken") as raised:
            pool.reset()
        assert raised.value.env_ids == (0, 1)
        assert pool.recv().env_ids.tolist() == [2, 3]
        pool.reset(env_ids=[0, 1])
        pool.step(np.arange(4))


def test_a_death_is_that_of_all_its_slots() -> None:
    with Pool(plain(2, 3, step=die), vector_size=3) as pool:
        pool.reset()
        with pytest.raises(WorkerDiedError) as raised:
            pool.step(np.arange(6))
        assert raised.value.env_ids == (0, 1, 2)
        assert pool.recv().env_ids.tolist() == [3, 4, 5]


def test_ctrl_c_is_the_callers_where_he_steps_himself(tmp_path: Path) -> None:
    step = once(tmp_path / "step", raising(KeyboardInterrupt))
    with Pool(plain(1, 2, step=step), vector_size=2, backend="serial") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step([0, 0])
        pool.reset()
        pool.step([0, 0])


# -- faults: restart ---------------------------------------------------------------------------------------------


def restarting(mode: Any, size: int = 3, length: int = 1_000_000, policy: Any = "restart", **hooks: Any) -> Pool:
    """Two vector envs, each in a worker of its own; hooks are those of the first."""
    return Pool(plain(2, size, length, mode, **hooks), vector_size=size, autoreset=mode, faults=policy)


def go_on(pool: Pool) -> Batch:
    """Steps once, after a reset of the first vector env where it needs one."""
    first = list(range(pool.vector_size or 1))
    actions = np.arange(pool.num_envs)
    if pool.autoreset == "disabled":
        ids = ", ".join(map(str, first)) if len(first) < 3 else f"0-{first[-1]}"
        with pytest.raises(StateError, match=f"got envs {ids};"):
            pool.step(actions)
        pool.reset(env_ids=first)
    elif pool.autoreset == "next_step":
        batch = pool.step(actions)
        assert not batch.reward[first].any()
        assert not batch.truncated[first].any()
        assert (batch.obs[first, 2] == 0).all()
    batch = pool.step(actions)
    assert (batch.obs[first, 2] == 1).all()
    assert batch.obs[first, 3].tolist() == first
    return batch


@pytest.mark.parametrize("accident", [die, raising(lambda: ValueError("broken"))])
@pytest.mark.parametrize("mode", MODES)
def test_a_failed_step_cuts_all_its_episodes_off(mode: Any, accident: Any, tmp_path: Path) -> None:
    step = once(tmp_path / "step", accident, lambda env: env.steps == 2)
    with restarting(mode, step=step) as pool:
        pool.reset(seed=3)
        before = pool.step(np.arange(6))
        batch = pool.step(np.arange(6))
        for slot in range(3):
            fault = assert_cut_off(batch, slot, before.obs[slot])
            assert (fault.env_id, fault.worker, fault.operation, fault.shared) == (slot, 0, "step", slot != 0)
            assert fault.kind == ("death" if accident is die else "exception")
            assert fault.where.episode == 0
            assert fault.where.step == 2
            assert fault.where.seed == 3 + slot
        assert batch.obs[3:, 2].tolist() == [2, 2, 2]
        assert go_on(pool).obs[3:, 2].tolist() == [4 if mode == "next_step" else 3] * 3
        assert pool.stats().restarts == 1


def test_an_exception_under_restart_tells_of_each_slot(tmp_path: Path) -> None:
    step = once(tmp_path / "step", raising(lambda: ValueError("broken")))
    with restarting("next_step", step=step) as pool:
        pool.reset()
        batch = pool.step(np.arange(6))
        errors = [fault_in(batch, slot).error for slot in range(3)]
        assert all(isinstance(error, EnvError) and error.env_ids == (0, 1, 2) for error in errors)


@pytest.mark.parametrize("mode", MODES)
def test_who_was_just_over_is_cut_off_too(mode: Any, tmp_path: Path) -> None:
    """Only some of its episodes had ended: all are told alike, or the slots of a vector env would fall out of step."""
    step = once(tmp_path / "step", die, lambda env: env.steps == 3)
    with restarting(mode, length=2, step=step) as pool:
        pool.reset()
        pool.step(np.arange(6))
        before = pool.step(np.arange(6))
        assert before.terminated.tolist() == [True, False, False] * 2
        batch = pool.step(np.arange(6))
        for slot in range(3):
            assert_cut_off(batch, slot, before.obs[slot])
        go_on(pool)


@pytest.mark.parametrize("mode", MODES)
def test_a_death_when_all_were_over_is_one_in_a_reset(mode: Any, tmp_path: Path) -> None:
    step = once(tmp_path / "step", die, lambda env: env.steps == 3)
    with restarting(mode, size=1, length=2, step=step) as pool:
        pool.reset()
        for _ in range(2):
            before = pool.step([0, 1])
        assert before.terminated.all()
        batch = pool.step([0, 1])
        if mode == "next_step":
            assert batch.obs[0].tolist() == [0, 1, 0, -1]
            assert not batch.truncated[0]
            assert pool.step([5, 1]).obs[0].tolist() == [0, 1, 1, 5]
        else:
            assert_cut_off(batch, 0, before.obs[0])


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_death_between_two_steps_is_told_with_the_next(mode: Any, over: bool, noticed: bool) -> None:
    with restarting(mode, length=2 if over else 1_000_000) as pool:
        pool.reset()
        pool.step(np.arange(6))
        before = pool.step(np.arange(6))
        assert before.terminated.tolist() == [over, False, False] * 2
        _kill(pool, noticed)
        batch = pool.step(np.arange(6))
        for slot in range(3):
            last = before.obs[slot]
            assert assert_cut_off(batch, slot, last).operation == ("nothing" if noticed else "step")
        go_on(pool)


@pytest.mark.parametrize("noticed", [False, True])
def test_a_death_between_episodes_needs_no_telling(noticed: bool) -> None:
    with restarting("next_step", size=1, length=1) as pool:
        pool.reset()
        assert pool.step([0, 1]).terminated.all()
        _kill(pool, noticed)
        batch = pool.step([0, 1])
        assert batch.obs[0].tolist() == [0, 1, 0, -1]
        assert not batch.truncated.any()


def _kill(pool: Pool, noticed: bool) -> None:
    """Kills the first worker; `noticed`: and waits until the pool knows."""
    os.kill(pool.workers[0].pid or 0, signal.SIGKILL)
    _await_end(pool, 0)
    while noticed and pool.stats().restarts == 0:
        pool.call("poke", env_ids=[pool.num_envs - 1])


def _await_end(pool: Pool, worker: int) -> None:
    pidfd = os.pidfd_open(pool.workers[worker].pid or 0)
    select.select([pidfd], [], [])
    os.close(pidfd)


@pytest.mark.parametrize("mode", MODES)
def test_a_death_while_results_are_sent_leaves_none_of_them(mode: Any, tmp_path: Path) -> None:
    """One slot's result has come and the next one's has not: the vector env has done no step."""
    step = once(tmp_path / "step", die_while_sending, lambda env: env.steps == 2)
    with restarting(mode, size=2, step=step) as pool:
        pool.reset()
        before = pool.step(np.arange(4))
        pool.send(np.arange(4))
        _await_end(pool, 0)
        seen: dict[int, Any] = {}
        while pool.pending:
            batch = pool.recv(min_envs=1)
            seen |= {env: final_info(batch, row) for row, env in enumerate(batch.env_ids.tolist())}
        assert [seen[env]["fault"].kind for env in (0, 1)] == ["death"] * 2
        assert "parcel" not in seen[0]
        assert before.obs[:2, 2].tolist() == [1, 1]
        go_on(pool)


@pytest.mark.parametrize("accident", [die, raising(lambda: ValueError("broken"))])
@pytest.mark.parametrize("mode", MODES)
def test_a_failed_reset_is_tried_again(mode: Any, accident: Any, tmp_path: Path) -> None:
    with restarting(mode, reset=once(tmp_path / "reset", accident, skip=1)) as pool:
        pool.reset(seed=1)
        batch = pool.reset(seed=5, options={"level": 2})
        assert batch.obs[:3, 1].tolist() == [1, 1, 1]
        assert resets_of_first(pool) == [{"seed": 5, "options": {"level": 2}}]
        assert not batch.truncated.any()
        pool.step(np.arange(6))


def resets_of_first(pool: Pool) -> Any:
    return pool.get_attr("resets", env_ids=[0])[0]


@pytest.mark.parametrize("mode", MODES)
def test_where_each_of_its_envs_had_come_to(mode: Any, tmp_path: Path) -> None:
    step = once(tmp_path / "step", raising(lambda: ValueError("broken")), lambda env: env.steps == 4)
    with Pool(plain(1, 3, 2, mode, step=step), vector_size=3, autoreset=mode) as pool:
        pool.reset(seed=5)
        for _ in range(3):
            pool.step([1, 2, 3])
        with pytest.raises(EnvError) as raised:
            pool.step([4, 5, 6])
        wheres = [failure.where for failure in raised.value.failures]
        assert [(where.episode, where.step) for where in wheres if where] == {
            "next_step": [(1, 1), (1, 0), (0, 4)],  # the first two had their resets in the third and the fourth
            "same_step": [(1, 2), (1, 1), (0, 4)],
            "disabled": [(0, 4)] * 3,
        }[mode]
        assert [where.seed for where in wheres if where] == [5, 6, 7]
        assert [where.action for where in wheres if where and where.step] == (
            [4, 6] if mode == "next_step" else [4, 5, 6]
        )


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_observations_without_columns_survive_too(mode: Any, tmp_path: Path) -> None:
    before_step = once(tmp_path / "step", die, lambda env: env.steps == 2)
    fns = synced([lambda: TextEnv()] * 4, 2, mode, before_step)
    with Pool(fns, vector_size=2, autoreset=mode, faults="restart") as pool:
        pool.reset(options={"text": "first"})
        pool.step(["a", "b", "c", "d"])
        batch = pool.step(["e", "f", "g", "h"])
        assert batch.truncated.tolist() == [True, True, False, False]
        ends = batch.obs if mode == "next_step" else batch.final_obs
        assert ends[:2] == ("a", "b")
        assert [fault_in(batch, slot).kind for slot in (0, 1)] == ["death"] * 2
        assert batch.obs[2:] == ("g", "h")
        if mode == "next_step":
            assert pool.step([""] * 4).obs[:2] == ("", "")
        assert pool.step(["i", "j", "k", "l"]).obs == ("i", "j", "k", "l")


@pytest.mark.parametrize("mode", MODES)
def test_a_death_in_the_reset_of_a_successor(mode: Any, tmp_path: Path) -> None:
    step, reset = once(tmp_path / "step", die), once(tmp_path / "reset", die, skip=1)
    with restarting(mode, step=step, reset=reset) as pool:
        before = pool.reset()
        batch = pool.step(np.arange(6))
        for slot in range(3):
            assert_cut_off(batch, slot, before.obs[slot])
        go_on(pool)
        assert pool.stats().restarts == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_kills_and_an_observation(mode: Any, tmp_path: Path) -> None:
    with restarting(mode, call=once(tmp_path / "call", die)) as pool:
        pool.reset()
        before = pool.step(np.arange(6))
        with pytest.raises(WorkerDiedError):
            pool.call("poke", env_ids=[0])
        pool.send_observe()
        batch = pool.recv()
        for slot in range(3):
            assert_cut_off(batch, slot, before.obs[slot])
        assert batch.obs[3:].tolist() == before.obs[3:].tolist()
        if mode == "next_step":  # the new one knows of no observation yet, but we do
            pool.send_observe()
            assert pool.recv().obs[:3].tolist() == before.obs[:3].tolist()
        go_on(pool)


@pytest.mark.parametrize("mode", MODES)
def test_neighbours_in_a_worker_die_with_it(mode: Any, tmp_path: Path) -> None:
    """The worker comes to them second, so they have not begun the step in which it dies."""
    fns = plain(3, 2, mode=mode, step=once(tmp_path / "step", die, lambda env: env.steps == 2))
    with Pool(fns, vector_size=2, autoreset=mode, faults="restart", num_workers=2) as pool:
        pool.reset()
        before = pool.step(np.arange(6))
        batch = pool.step(np.arange(6))
        for slot in range(4):
            assert assert_cut_off(batch, slot, before.obs[slot]).shared == (slot != 0)
        assert batch.obs[4:, 2].tolist() == [2, 2]
        begin_anew(pool, range(4))
        assert pool.step(np.arange(6)).obs[:4, 2].tolist() == [1] * 4
        assert pool.stats().restarts == 1


@pytest.mark.parametrize("mode", MODES)
def test_neighbours_of_one_that_raises_are_told_with_the_next_step(mode: Any, tmp_path: Path) -> None:
    """Theirs was done before the worker was replaced."""
    step = once(tmp_path / "step", raising(lambda: ValueError("broken")), lambda env: env.steps == 2)
    fns = plain(3, 2, mode=mode, step=step)
    with Pool(fns, vector_size=2, autoreset=mode, faults="restart", num_workers=2) as pool:
        pool.reset()
        before = pool.step(np.arange(6))
        batch = pool.step(np.arange(6))
        for slot in (0, 1):
            assert assert_cut_off(batch, slot, before.obs[slot]).kind == "exception"
        assert batch.obs[2:, 2].tolist() == [2] * 4
        if mode == "disabled":
            pool.reset(env_ids=[0, 1])
        before, batch = batch, pool.step(np.arange(6))
        assert batch.obs[:2, 2].tolist() == ([0, 0] if mode == "next_step" else [1, 1])
        for slot in (2, 3):
            assert assert_cut_off(batch, slot, before.obs[slot]).shared
        begin_anew(pool, range(2, 4))
        assert pool.step(np.arange(6)).obs[2:4, 2].tolist() == [1, 1]


def begin_anew(pool: Pool, env_ids: Sequence[int]) -> None:
    """What comes before their first step, after they were told of their end."""
    if pool.autoreset == "disabled":
        pool.reset(env_ids=env_ids)
    elif pool.autoreset == "next_step":
        pool.step(np.zeros(pool.num_envs, int))


def test_a_deadline(tmp_path: Path) -> None:
    step = once(tmp_path / "step", lambda *_: select.select([], [], []))
    with restarting("next_step", policy=FaultPolicy("restart", step_timeout=0.5), step=step) as pool:
        before = pool.reset()
        batch = pool.step(np.arange(6))
        for slot in range(3):
            fault = assert_cut_off(batch, slot, before.obs[slot])
            assert fault.kind == "timeout"
            assert isinstance(fault.error, EnvTimeoutError)
        go_on(pool)


def test_too_many_faults() -> None:
    policy = FaultPolicy("restart", max_restarts=2, backoff=0)
    with restarting("next_step", policy=policy, step=raising(lambda: ValueError("broken"))) as pool:
        pool.reset()
        with pytest.raises(RestartLimitError, match="max_restarts=2"):
            for _ in range(10):
                pool.step(np.arange(6))
        assert pool.recv().env_ids.tolist() == [3, 4, 5]


def test_restarts_of_the_whole_pool_count_vector_envs(tmp_path: Path) -> None:
    policy = FaultPolicy("restart", max_pool_restarts=1)
    with restarting("same_step", policy=policy, step=once(tmp_path / "step", die)) as pool:
        pool.reset()
        pool.step(np.arange(6))
        go_on(pool)


# -- the rest ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_auto_counts_vector_envs(mode: Any) -> None:
    with Pool(synced(ending(4), 2, mode), vector_size=2, autoreset=mode, num_workers="auto") as pool:
        assert pool.num_workers in (1, 2)
        assert pool.num_envs == 4


def test_what_a_pool_tells_of_itself() -> None:
    with Pool(synced(counting(6), 3), vector_size=3) as pool:
        assert (pool.num_envs, pool.num_workers, pool.vector_size) == (6, 2, 3)
        assert [worker.env_ids for worker in pool.workers] == [(0, 1, 2), (3, 4, 5)]
        assert pool.single_observation_space == CountingEnv().observation_space
        assert len(pool.observation_spaces) == 6
        pool.reset()
        pool.step(np.arange(6))
        assert pool.stats().steps == 12


def test_limits_on_concurrency() -> None:
    with Pool(plain(3, 2), vector_size=2, max_concurrency=1) as pool:
        pool.reset(seed=1)
        for _ in range(5):
            batch = pool.step(np.arange(6))
        assert batch.obs[:, 2].tolist() == [5] * 6


def test_an_env_that_raises_in_close() -> None:
    pool = Pool(plain(2, 2, close=raising(lambda: ValueError("broken"))), vector_size=2)
    with pytest.raises(EnvError, match=r"env 0 .* raised ValueError in close: broken"):
        pool.close()


def test_an_id_of_gymnasium() -> None:
    def build() -> Any:
        return gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point")

    with Pool([build] * 2, vector_size=4) as pool:
        pool.reset(seed=0)
        for _ in range(50):
            batch = pool.step(np.ones(8, int))
        assert batch.obs.shape == (8, 4)


def test_advice_speaks_of_vector_envs() -> None:
    text = advice(StepCost(wall=1e-2, cpu=1e-2), 4, 1, 4, "vector envs")
    assert text is not None
    assert "num_workers=4 would step these 4 vector envs about 4 times faster" in text
