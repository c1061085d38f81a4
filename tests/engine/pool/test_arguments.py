"""Errors about arguments quote what the caller wrote and name the argument that was probably meant."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from old_gymnasium import GYMNASIUM_MODES
from pool_envs import counting, hooked

from remuda import CrashDir, EnvError, FaultPolicy, InvalidActionError, Pool
from remuda._engine.commands.arguments import check_env_ids, check_limit
from remuda._engine.options.checks import check_timeout
from remuda.gymnasium.autoreset import POOL_MODE, AutoresetMode


@pytest.mark.parametrize("mode", [*GYMNASIUM_MODES.values(), "SameStep"])
def test_the_pool_accepts_gymnasiums_autoreset_modes(mode: Any) -> None:
    name = POOL_MODE[AutoresetMode(mode)]
    with Pool(counting(1, length=1), autoreset=mode, backend="serial") as pool:
        assert pool.autoreset == name
        pool.reset()
        assert (pool.step([1]).final_obs is not None) == (name == "same_step")


def test_other_modes_are_refused() -> None:
    for mode in (Enum("Mode", "SAME_STEP").SAME_STEP, "same-step", 3, ["next_step"]):  # type: ignore[attr-defined]
        with pytest.raises((ValueError, TypeError), match="expected autoreset to be one of"):
            Pool(counting(1), autoreset=mode)


@pytest.mark.parametrize("cls", [Pool, FaultPolicy, CrashDir])
def test_the_error_of_a_misspelt_keyword_names_the_keyword_that_was_meant(cls: type) -> None:
    known = {Pool: "num_workers", FaultPolicy: "step_timeout", CrashDir: "max_files"}[cls]
    arguments = {Pool: (counting(1),), FaultPolicy: (), CrashDir: ("records",)}[cls]
    with pytest.raises(TypeError) as raised:
        cls(*arguments, **{known[:-1]: 2})
    text = f"{cls.__name__}() got an unexpected keyword argument '{known[:-1]}'; did you mean {known}=?"
    assert str(raised.value) == text
    otherwise = "; help(remuda.PoolOptions) has all options" if cls is Pool else ""
    with pytest.raises(TypeError, match=rf"got an unexpected keyword argument 'zzz'{re.escape(otherwise)}$"):
        cls(*arguments, zzz=1)


@pytest.mark.parametrize(
    ("keyword", "advice"),
    [
        ("shared_memory", "arrays always travel through shared memory: leave it out"),
        ("env_workers", "help(remuda.PoolOptions) has all options"),  # similar to pin_workers, but no misspelling
        ("directory", "did you mean crash_dir=CrashDir(directory=2)?"),
        ("env_factory", "help(remuda.PoolOptions) has all options"),
        ("timeout", "use start_timeout=, or a deadline, as in faults=remuda.FaultPolicy(step_timeout=...)"),
    ],
)
def test_the_error_of_an_unknown_keyword_gives_no_wrong_advice(keyword: str, advice: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"unexpected keyword argument '{keyword}'; {advice}") + "$"):
        Pool(counting(1), **{keyword: 2})  # type: ignore[arg-type]


def test_errors_of_env_ids_and_limits_name_the_value_and_send_nothing() -> None:
    with Pool(counting(4), backend="serial") as pool:
        pool.reset()
        for wrong, message in (
            ([1, 9], "from 0 to 3, got 9 at env_ids[1]"),
            ([2, 1, 2], "from 0 to 3, got 2 again at env_ids[2]"),
            (np.array([True, False]), "; for a mask, pass numpy.flatnonzero(mask)"),
            ([], "to have at least one env, got none; nothing was sent"),
        ):
            for call in (lambda ids: pool.reset(env_ids=ids), lambda ids: pool.step([0] * len(ids), ids)):
                with pytest.raises((ValueError, TypeError), match=re.escape(message)):
                    call(wrong)
        pool.send([0] * 4)
        with pytest.raises(ValueError, match=r"expected min_envs to be at most 4 \(the number of envs\), got 5"):
            pool.recv(min_envs=5)
        assert len(pool.recv(min_envs=4)) == 4


def test_other_values_of_faults_are_refused() -> None:
    for faults, error in (("retry", ValueError), (True, TypeError), ({"on_fault": "raise"}, TypeError)):
        with pytest.raises(error, match="expected faults to be 'raise', 'restart' or a FaultPolicy, got"):
            Pool(counting(1), faults=faults)  # type: ignore[arg-type]
    assert FaultPolicy.of("restart") == FaultPolicy("restart")


def test_a_timeout_that_is_no_number_is_refused_without_effect() -> None:
    with Pool(counting(2), num_workers=1) as pool:
        call = pool.call_async("echo")
        for wait in (lambda: call.result(timeout="soon"), lambda: pool.close(timeout="soon")):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="expected timeout to be a number of seconds or None, got 'soon'"):
                wait()
        assert not pool.closed
        assert call.result() == [((), {})] * 2


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0.5], "actions[1] is 0.5"),
        ([0, "x"], "actions[1] is 'x'"),
        ([0, None], "actions[1] is None"),
        (np.array([1.0, np.nan]), "actions[1] is nan"),
        (np.array([2.0**70, 0]), f"actions[0] is {2.0**70}"),
    ],
)
def test_the_error_of_an_action_names_the_value_that_does_not_fit(actions: Any, message: str) -> None:
    with Pool(counting(2), backend="serial") as pool:
        pool.reset()
        with pytest.raises(InvalidActionError, match="expected an array of shape") as raised:
            pool.step(actions)
        assert str(raised.value).endswith(f", in which {message}")
        pool.step([0, 1])


@pytest.mark.parametrize("backend", ["process", "serial"])
def test_the_error_of_an_observation_names_the_number_that_does_not_fit(backend: Any) -> None:
    space = spaces.Dict({"image": spaces.Box(0, 255, (2, 2), np.uint8)})

    def build(env: Any) -> None:
        env.observation_space = space

    def reset(env: Any) -> Any:
        return {"image": np.array([[1, 2], [300, -1]])}, {}

    message = r"dtype uint8 at obs\['image'\], got .*, in which obs\['image'\]\[1\]\[0\] is 300"
    with (
        Pool(hooked(1, [0], build=build, reset=reset), backend=backend) as pool,
        pytest.raises(EnvError, match=message),
    ):
        pool.reset()


@given(st.lists(st.integers(-3, 8), max_size=6))
def test_env_ids(env_ids: list[int]) -> None:
    good = all(0 <= i < 5 for i in env_ids) and len(set(env_ids)) == len(env_ids)
    for given_ids in (env_ids, tuple(env_ids), np.array(env_ids, dtype=np.int16)):
        if good:
            assert check_env_ids(given_ids, range(5)) == env_ids
        else:
            with pytest.raises(ValueError, match="expected env_ids to be distinct ints from 0 to 4, got"):
                check_env_ids(given_ids, range(5))


def test_limits_and_timeouts() -> None:
    for limit in (None, 0, 3, np.int64(2)):
        check_limit("min_envs", limit)
    for timeout in (None, 0, 1.5, -1, float("inf"), np.float32(1), True):
        check_timeout(timeout)
    for bad in ("1", float("nan"), [1]):
        with pytest.raises(TypeError, match="expected timeout to be a number of seconds or None"):
            check_timeout(bad)
