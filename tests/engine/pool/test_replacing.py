"""`pool.replace`: other envs in running workers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from accidents import kill_myself, once, raise_value_error
from drawing_envs import ContextEnv, colour, forget_graphics, pictures
from gymnasium import spaces
from old_gymnasium import HAS_MODES
from pairs import each
from pool_envs import CountingEnv, Gate, HookedEnv, begun, counting
from programs import kill, pids_of
from vector_envs import PlainVector, plain, synced

from remuda import (
    EnvError,
    FaultPolicy,
    InvalidEnvError,
    Pool,
    SpaceMismatchError,
    StateError,
    WorkerDiedError,
    load_record,
)

BACKENDS = [("process", 3), ("process", 1), ("serial", 1)]
MODES = ["next_step", "same_step", "disabled", "background"]


def replacement(tag: int, **arguments: Any) -> Callable[[], CountingEnv]:
    return partial(CountingEnv, tag, **arguments)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A file to which the envs of `noting` append their tags when they are closed."""
    (tmp_path / "closed").write_text("")
    return tmp_path / "closed"


def noting(tag: int, path: Path, **hooks: Any) -> Callable[[], HookedEnv]:
    def close(env: Any) -> None:
        with open(path, "a") as file:
            file.write(f"{env.tag} ")

    return partial(HookedEnv, tag, close=close, **hooks)


def fails() -> Any:
    raise ValueError("no such task")


@pytest.mark.parametrize(("backend", "num_workers"), BACKENDS)
def test_replace_closes_the_old_env(backend: Any, num_workers: int, closed: Path) -> None:
    with begun([noting(i, closed) for i in range(3)], backend=backend, num_workers=num_workers) as pool:
        pool.step([1, 2, 3])
        before = pids_of(pool)
        pool.replace([2, 0], [replacement(20), replacement(10)])
        assert sorted(closed.read_text().split()) == ["0", "2"]
        assert pool.get_attr("tag") == [10, 1, 20]
        assert pids_of(pool) == before
        pool.send_reset(env_ids=[0, 2])
        assert pool.recv(order="slot").obs.tolist() == [[10, 1, 0, -1], [20, 1, 0, -1]]
        assert pool.step([4, 5, 6]).obs.tolist() == [[10, 1, 1, 4], [1, 1, 2, 5], [20, 1, 1, 6]]
    assert sorted(closed.read_text().split()) == ["0", "1", "2"]


@each(backend__num_workers=BACKENDS, mode=MODES)
def test_a_replacement_is_reset_as_the_autoreset_mode_requires(mode: Any, backend: Any, num_workers: int) -> None:
    with begun(counting(3), backend=backend, num_workers=num_workers, autoreset=mode, seed=5) as pool:
        pool.step([1, 1, 1])
        pool.replace([1], [replacement(10)])
        if mode == "next_step":
            batch = pool.step([2, 2, 2])
            assert not (batch.terminations | batch.truncations).any()
            assert (batch.obs[1].tolist(), batch.rewards.tolist()) == ([10, 1, 0, -1], [2, 0, 2])
        else:
            with pytest.raises(StateError, match="got env 1; call reset first"):
                pool.step([2, 2, 2])
            assert pool.reset(env_ids=[1]).obs.tolist() == [[10, 1, 0, -1]]
        assert pool.step([3, 3, 3]).obs[1].tolist() == [10, 1, 1, 3]
        # the seed is derived, because an unseeded reset would not be reproducible
        assert pool.get_attr("last_seed")[1] not in (None, 6)


@pytest.mark.parametrize(("backend", "num_workers"), BACKENDS)
def test_a_failed_build_keeps_the_old_envs(backend: Any, num_workers: int, closed: Path) -> None:
    with begun(counting(3), backend=backend, num_workers=num_workers) as pool:
        with pytest.raises(EnvError, match=r"env 2 \(worker \d\) raised ValueError in build: no such task") as raised:
            pool.replace([1, 2], [noting(10, closed), fails])
        assert raised.value.env_ids == (2,)
        pool.call("pid")  # the worker closes env 10 before it answers this call
        assert closed.read_text().split() == ["10"]
        assert pool.step([7, 8, 9]).obs.tolist() == [[0, 1, 1, 7], [1, 1, 1, 8], [2, 1, 1, 9]]
        with suppress(EnvError):
            pool.replace([1, 2], [noting(11, closed), fails])
    assert closed.read_text().split() == ["10", "11"]  # also if the pool is closed at once


def with_spaces(**others: spaces.Space[Any]) -> Any:
    env = CountingEnv(10)
    vars(env).update(others)
    return env


@each(
    backend__num_workers=BACKENDS,
    env_fn__error__message=[
        (
            partial(with_spaces, observation_space=spaces.Box(-1, 1, (5,), np.int64)),
            SpaceMismatchError,
            r"got env 1: shape \(5,\) instead of \(4,\)",
        ),
        (
            partial(with_spaces, action_space=spaces.Box(-1, 1, (2,))),
            SpaceMismatchError,
            "expected every action space to have",
        ),
        (lambda: 3, InvalidEnvError, "expected the new factory of env 1 to return a gymnasium.Env, got 3"),
        (lambda: gymnasium.vector.SyncVectorEnv([CountingEnv]), InvalidEnvError, "got the vector env"),
    ],
)
def test_an_env_that_does_not_fit_keeps_the_old_env(
    env_fn: Any, error: Any, message: str, backend: Any, num_workers: int
) -> None:
    with begun(counting(3), backend=backend, num_workers=num_workers) as pool:
        with pytest.raises(error, match=message):
            pool.replace([1], [env_fn])
        assert pool.step([7, 8, 9]).obs.tolist() == [[0, 1, 1, 7], [1, 1, 1, 8], [2, 1, 1, 9]]


def test_bad_arguments_of_replace_are_refused_before_anything_is_built() -> None:
    with begun(counting(3)) as pool:
        with pytest.raises(ValueError, match="expected 2 env_fns, one for each env to replace, got 1"):
            pool.replace([1, 2], [replacement(10)])
        with pytest.raises(TypeError, match=r"expected env_fns\[0\] to be a function that builds an env, got 3"):
            pool.replace([1], [3])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="env_ids"):
            pool.replace([3], [replacement(10)])
        with pytest.raises(InvalidEnvError, match="expected the new factory of env 0 to be one that can be pickled"):
            lock = threading.Lock()
            pool.replace([0], [lambda: lock])
        pool.send([1, 1, 1])
        with pytest.raises(StateError, match="expected no env in flight where envs are replaced, got env 1"):
            pool.replace([1], [replacement(10)])
        assert pool.recv().obs[:, 0].tolist() == [0, 1, 2]
    with Pool(counting(2), backend="serial") as pool:  # without processes, nothing is pickled
        pool.replace(None, [lambda: CountingEnv(10 + lock.locked())] * 2)
        assert pool.reset().obs[:, 0].tolist() == [10, 10]


def step_until_fault(pool: Pool, env: int) -> None:
    while "fault" not in pool.step([1] * pool.num_envs).infos[env]:
        pass


@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_restarted_worker_builds_the_replacements(start_method: Any) -> None:
    faults = FaultPolicy("restart", backoff=0)
    with begun(counting(4), num_workers=2, faults=faults, start_method=start_method) as pool:
        for tag in (10, 20):  # twice, so that the second replacement replaces the first
            pool.replace([1, 2], [replacement(tag + 1), replacement(tag + 2)])
            pool.reset()
            kill(pool, 0)
            step_until_fault(pool, 1)
            assert pool.get_attr("tag") == [0, tag + 1, tag + 2, 3]
        kill(pool, 1)
        step_until_fault(pool, 2)
        assert pool.get_attr("tag") == [0, 21, 22, 3]


@pytest.mark.parametrize(("backend", "num_workers"), BACKENDS)
def test_a_replacement_that_raises_or_is_renewed_is_rebuilt_by_its_factory(backend: Any, num_workers: int) -> None:
    def step(env: Any, action: int) -> None:
        if action == 13:
            raise ValueError("broken")

    faults = FaultPolicy("restart", backoff=0, renew_every=3)
    with begun(counting(3), backend=backend, num_workers=num_workers, faults=faults) as pool:
        pool.replace([1], [partial(HookedEnv, 10, length=2, step=step)])
        pool.reset()
        assert pool.step([1, 13, 1]).truncations.tolist() == [False, True, False]
        assert pool.get_attr("tag") == [0, 10, 2]
        for _ in range(12):
            pool.step([1, 1, 1])
        assert pool.get_attr("tag") == [0, 10, 2]


def test_a_replacement_receives_lasting_attributes_and_options() -> None:
    with Pool(counting(2), num_workers=None) as pool:
        pool.set_attr("level", 7, lasting=True)
        pool.set_reset_options({"hard": True})
        pool.reset()
        pool.replace([1], [replacement(10)])
        pool.reset()
        assert pool.get_attr("level") == [7, 7]
        assert pool.get_attr("last_options") == [{"hard": True}] * 2


@pytest.mark.parametrize(
    ("accident", "message"),
    [
        (kill_myself, r"worker 1 .* died while in build \(env 1"),
        (lambda: signal.pause(), r"took longer than start_timeout=5.0 s"),
    ],
    ids=["death", "hang"],
)
def test_a_worker_that_dies_or_hangs_in_a_replacement_restarts_with_the_old_envs(
    accident: Any, message: str, closed: Path
) -> None:
    with begun(counting(3), faults=FaultPolicy("restart", backoff=0), start_timeout=5.0) as pool:
        with pytest.raises(WorkerDiedError, match=message):
            pool.replace([0, 1], [noting(10, closed), accident])
        step_until_fault(pool, 1)
        assert pool.get_attr("tag") == [0, 1, 2]
        assert closed.read_text().split() == ["10"]
    with begun(counting(3)) as pool:
        with pytest.raises(WorkerDiedError):
            pool.replace([1], [kill_myself])
        assert pool.step([1, 1], env_ids=[0, 2]).obs[:, 0].tolist() == [0, 2]


def test_crash_records_name_the_replacement(tmp_path: Path) -> None:
    with begun(counting(2), crash_dir=tmp_path) as pool:
        pool.replace([1], [partial(HookedEnv, 10, step=raise_value_error)])
        pool.reset(seed=3)
        with pytest.raises(EnvError) as raised:
            pool.step([1, 1])
    assert raised.value.record is not None
    record = load_record(raised.value.record)
    assert "HookedEnv" in record.factory
    assert record.start is not None


def test_spaces_are_those_of_the_replacement() -> None:
    smaller: Any = {"observation_space": spaces.Box(-5, 5, (4,), np.int64), "action_space": spaces.Discrete(500)}
    bounded = partial(with_spaces, **smaller)
    for seeding in ("gymnasium", "per_episode"):
        with Pool(counting(3), seeding=seeding, num_workers=None) as pool:  # type: ignore[arg-type]
            pool.replace([1], [bounded])
            assert pool.observation_spaces[1] == spaces.Box(-5, 5, (4,), np.int64)
            assert pool.observation_spaces[2] == pool.single_observation_space
            assert pool.action_spaces == (pool.single_action_space, spaces.Discrete(500), pool.single_action_space)


@each(mode=["next_step", "same_step", "disabled"], num_workers=[1, 2])
def test_whole_vector_envs_are_replaced(mode: Any, num_workers: int) -> None:
    make = partial(PlainVector, 2, mode=mode)
    with begun([partial(make, 0), partial(make, 2)], vector_size=2, num_workers=num_workers, autoreset=mode) as pool:
        pool.step([1] * 4)
        with pytest.raises(ValueError, match="env_ids"):
            pool.replace([2], [partial(make, 10)])
        with pytest.raises(ValueError, match="expected 1 env_fns, one for each vector env to replace, got 2"):
            pool.replace([2, 3], [partial(make, 10)] * 2)
        pool.replace([2, 3], [partial(make, 10)])
        pool.send_reset(env_ids=[2, 3])
        assert pool.recv(order="slot").obs[:, 0].tolist() == [10, 11]
        assert pool.step([1] * 4).obs[:, 0].tolist() == [0, 1, 10, 11]
        if HAS_MODES:
            other = "next_step" if mode == "same_step" else "same_step"
            with pytest.raises(ValueError, match=f"expected vector envs that agree with autoreset='{mode}'"):
                pool.replace([0, 1], synced(counting(2), 2, other))
            assert pool.step([1] * 4).obs[:, 0].tolist() == [0, 1, 10, 11]


def test_replace_discards_a_reset_in_advance() -> None:
    with begun(counting(2, length=1), resets_ahead=True, seeding="per_episode", seed=1) as pool:
        assert pool.step([1, 1]).terminations.all()
        pool.replace([1], [replacement(10, length=1)])
        batch = pool.step([1, 1])
        assert batch.obs[:, :2].tolist() == [[0, 2], [10, 1]]
        seeds = [batch.infos[i]["episode_seed"] for i in range(2)]
    with begun(counting(2, length=1), seeding="per_episode", seed=1) as pool:
        pool.step([1, 1])
        batch = pool.step([1, 1])
        assert [batch.infos[i]["episode_seed"] for i in range(2)] == seeds


@pytest.mark.parametrize(
    ("accident", "backend", "size"),
    [
        (raise_value_error, "serial", None),
        (raise_value_error, "process", None),
        (raise_value_error, "process", 1),
        (kill_myself, "process", None),
        (None, "process", None),
    ],
)
def test_the_first_reset_of_a_replacement_is_repeated(
    accident: Any, backend: Any, size: int | None, tmp_path: Path
) -> None:
    """The step that makes this reset fails, or the worker dies (`accident` None) before it."""
    hooks = {"reset": once(tmp_path / "failed", accident or (lambda *_: None))}
    env = partial(HookedEnv, 10, **hooks) if size is None else partial(PlainVector, 1, 10, **hooks)
    fns: Any = counting(2) if size is None else plain(2, 1)
    with begun(fns, backend=backend, num_workers=2, faults="restart", vector_size=size) as pool:
        pool.step([1, 1])
        pool.replace([1], [env])
        if accident is None:
            kill(pool, 1)
        batch = pool.step([7, 8])
        assert batch.obs.tolist() == [[0, 1, 2, 7], [10, 1, 0, -1]]
        assert not batch.truncations.any()
        assert "fault" not in batch.infos[1]
        assert pool.step([7, 8]).obs[1].tolist() == [10, 1, 1, 8]


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_a_reset_after_an_interrupted_replace_is_not_repeated(mode: Any, tmp_path: Path) -> None:
    gate, main = Gate(tmp_path), os.getpid()

    def close(env: Any) -> None:  # the worker closes the old env once the new one is built
        os.kill(main, signal.SIGINT)
        gate.wait()

    with begun([replacement(0), partial(HookedEnv, 1, close=close)], autoreset=mode) as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.replace([1], [replacement(10)])
        with pytest.raises(StateError, match="got env 1; call reset first"):
            pool.step([1, 1])
        pool.send_reset()  # the late answer has not arrived
        gate.let_pass()
        assert pool.recv(order="slot").obs[:, 0].tolist() == [0, 10]
        assert pool.step([1, 1]).obs[:, 2].tolist() == [1, 1]


# -- envs that render: the old env is closed and freed before the new one is built -----------------------


ALONE = [("process", None), ("serial", 1)]  # each env is alone in its process


@pytest.fixture(autouse=True)
def no_graphics_of_other_tests() -> None:
    forget_graphics()


def other_spaces() -> ContextEnv:
    env = ContextEnv(10)
    env.observation_space = spaces.Box(-1, 1, (5,), np.int64)
    return env


def drawing(tag: int, path: Path | None = None, **arguments: Any) -> Callable[[], ContextEnv]:
    return partial(ContextEnv, tag, path=path, **arguments)


@pytest.mark.parametrize(("backend", "num_workers"), ALONE)
def test_an_env_that_renders_is_closed_before_its_successor_is_built(
    backend: Any, num_workers: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with begun([drawing(0, log)], backend=backend, num_workers=num_workers, seed=0) as pool:
        for tag in (1, 2):
            pool.replace([0], [drawing(tag, log)])
            pool.reset(seed=0)
            pool.step([0])
            assert pictures(pool) == [colour(tag, 1)]
    noted = log.read_text().splitlines()
    assert noted == ["built 0", "closed 0", "built 1", "closed 1", "built 2", "closed 2"]


@each(
    backend__num_workers=ALONE, mode=MODES, replacement__error=[(fails, EnvError), (other_spaces, SpaceMismatchError)]
)
def test_the_next_reset_rebuilds_the_old_env_after_a_failed_replacement(
    backend: Any, num_workers: Any, mode: Any, replacement: Any, error: Any
) -> None:
    with begun([drawing(0)], backend=backend, num_workers=num_workers, autoreset=mode, seed=5) as pool:
        pool.set_attr("mood", "calm", lasting=True)
        pool.step([1])
        with pytest.raises(error):
            pool.replace([0], [replacement])
        if mode == "next_step":
            assert pool.step([2]).obs.tolist() == [[0, 1, 0, -1]]
        else:
            with pytest.raises(StateError, match="got env 0; call reset first"):
                pool.step([2])
            assert pool.reset().obs.tolist() == [[0, 1, 0, -1]]
        assert pool.get_attr("last_seed")[0] not in (None, 5)  # the seed is derived, as for every rebuilt env
        assert pool.step([3]).obs.tolist() == [[0, 1, 1, 3]]
        assert pictures(pool) == [colour(0, 1)]
        assert pool.get_attr("mood") == ["calm"]


def test_all_replaced_envs_are_rebuilt_if_one_cannot_be_replaced() -> None:
    with begun([drawing(0), drawing(1), drawing(2)], num_workers=None, seed=0) as pool:
        pool.step([0, 0, 0])
        with pytest.raises(EnvError, match="no such task"):
            pool.replace([0, 1], [drawing(7), fails])
        assert pool.step([5, 5, 5]).obs.tolist() == [[0, 1, 0, -1], [1, 1, 0, -1], [2, 1, 2, 5]]
        assert pictures(pool) == [colour(0), colour(1), colour(2, 2)]
        pool.replace([1], [drawing(7)])
        pool.reset()
        assert pictures(pool) == [colour(0), colour(7), colour(2)]


def test_calls_and_set_state_rebuild_an_env_after_a_failed_replacement() -> None:
    def take(env: Any) -> int:
        return int(env.steps)

    def put(env: Any, steps: int) -> None:
        env.steps = steps

    with begun([drawing(0)], num_workers=None, seed=0) as pool:
        pool.step([0])
        states = pool.get_state(state_fns=(take, put))
        for use in (lambda: pool.call("pid"), lambda: pool.set_state(states)):
            with pytest.raises(EnvError, match="no such task"):
                pool.replace([0], [fails])
            use()
        assert pictures(pool) == [colour(0, 1)]


@pytest.mark.parametrize(("backend", "num_workers"), ALONE)
def test_a_reset_that_cannot_rebuild_the_old_env_raises_and_the_next_one_retries(
    backend: Any, num_workers: Any, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"

    def build() -> ContextEnv:
        if broken.exists():
            raise ValueError("no display")
        return ContextEnv(0)

    with begun([build], backend=backend, num_workers=num_workers, seed=0) as pool:
        broken.touch()
        with pytest.raises(EnvError, match="no such task"):
            pool.replace([0], [fails])
        for _ in range(2):
            with pytest.raises(EnvError, match="no display"):
                pool.reset()
        broken.unlink()
        assert pool.reset().obs.tolist() == [[0, 1, 0, -1]]


@each(backend=["process", "thread"], action__renew_every=[(0, 1), (9, None)])
def test_an_env_is_closed_before_it_is_rebuilt_in_its_process(
    backend: Any, action: int, renew_every: Any, tmp_path: Path
) -> None:
    log, faults = tmp_path / "log", FaultPolicy("restart", renew_every=renew_every)
    env_fns = [drawing(3, log, step=lambda _, given: raise_value_error() if given == 9 else None), CountingEnv]
    with Pool(env_fns, backend=backend, num_workers=1, faults=faults) as pool:
        for _ in range(3):
            pool.reset(seed=0)
            pool.step([action, 0])
        pool.reset(seed=0)
        pool.step([0, 0])
        assert int(pool.call("render", env_ids=[0])[0][0, 0, 0]) == colour(3, 1)
    noted = log.read_text().splitlines()
    assert noted == ["built 3", "closed 3"] * 4
