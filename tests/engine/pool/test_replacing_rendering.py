"""Replacement of envs that render: the old env is closed and freed before the new one is built."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing_envs import ContextEnv, colour, forget_graphics, pictures
from gymnasium import spaces
from pairs import each
from pool_envs import CountingEnv, begun

from remuda import EnvError, FaultPolicy, Pool, SpaceMismatchError, StateError

BACKENDS = [("process", None), ("serial", 1)]
MODES = ["next_step", "same_step", "disabled", "background"]


@pytest.fixture(autouse=True)
def no_graphics_of_other_tests() -> None:
    forget_graphics()


def drawing(tag: int, path: Path | None = None, **arguments: Any) -> Callable[[], ContextEnv]:
    return partial(ContextEnv, tag, path=path, **arguments)


def fails() -> Any:
    raise ValueError("no such task")


class OtherSpaces(ContextEnv):
    def __init__(self) -> None:
        super().__init__(10)
        self.observation_space = spaces.Box(-1, 1, (5,), np.int64)


@pytest.mark.parametrize(("backend", "num_workers"), BACKENDS)
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
    backend__num_workers=BACKENDS, mode=MODES, replacement__error=[(fails, EnvError), (OtherSpaces, SpaceMismatchError)]
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


@pytest.mark.parametrize(("backend", "num_workers"), BACKENDS)
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


def raise_on_action_9(env: Any, action: int) -> None:
    if action == 9:
        raise ValueError("broken")


@each(backend=["process", "thread"], action__renew_every=[(0, 1), (9, None)])
def test_an_env_is_closed_before_it_is_rebuilt_in_its_process(
    backend: Any, action: int, renew_every: Any, tmp_path: Path
) -> None:
    log, faults = tmp_path / "log", FaultPolicy("restart", renew_every=renew_every)
    env_fns = [drawing(3, log, step=raise_on_action_9), CountingEnv]
    with Pool(env_fns, backend=backend, num_workers=1, faults=faults) as pool:
        for _ in range(3):
            pool.reset(seed=0)
            pool.step([action, 0])
        pool.reset(seed=0)
        pool.step([0, 0])
        assert int(pool.call("render", env_ids=[0])[0][0, 0, 0]) == colour(3, 1)
    noted = log.read_text().splitlines()
    assert noted == ["built 3", "closed 3"] * 4
