"""Mistakes of the caller raise errors with the expected value, the actual value and its place. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from old_gymnasium import GYMNASIUM_MODES
from pool_envs import NestedEnv, SampleEnv, begun, counting

from remuda import (
    ClosedError,
    CrashDir,
    FaultPolicy,
    InvalidActionError,
    Pool,
    RemoteTraceback,
    RemudaError,
)


def assert_untouched(pool: Pool, steps: int = 0) -> None:
    assert pool.pending == 0
    assert pool.get_attr("total_steps") == [steps] * pool.num_envs


# -- actions ---------------------------------------------------------------------------------------------


DISCRETE = counting(3)
CHOICES = [lambda: SampleEnv(spaces.Discrete(2), spaces.Discrete(4))] * 3
FROM_FIVE = [lambda: SampleEnv(spaces.Discrete(2), spaces.Discrete(2, start=5))] * 3
BOX = [lambda: SampleEnv(spaces.Discrete(2), spaces.Box(-1, 1, (2, 2)))] * 3
NESTED = [NestedEnv] * 3
TEXTS = [lambda: SampleEnv(spaces.Discrete(2), spaces.Text(3))] * 3


def nest(**changes: Any) -> dict[str, Any]:
    return {"push": np.zeros((3, 2)), "keys": (np.zeros(3, int), np.zeros((3, 2), int)), **changes}


BAD_ACTIONS: list[tuple[Any, Any, str]] = [
    # too few actions, too many, none, another shape
    (DISCRETE, [1, 2], r"shape \(3,\) and dtype int64 at actions, got list of shape \(2,\): \[1, 2\]"),
    (DISCRETE, np.zeros(4, int), r"shape \(3,\).* at actions, got an array of shape \(4,\)"),
    (DISCRETE, 1, r"shape \(3,\).*got int: 1"),
    (DISCRETE, None, r"shape \(3,\).*got NoneType: None"),
    (DISCRETE, {0: 1, 1: 1, 2: 1}, r"shape \(3,\).*got a dict with the keys \[0, 1, 2\]"),
    (BOX, np.zeros((3, 4)), r"shape \(3, 2, 2\) and dtype float32 at actions, got .*\(3, 4\)"),
    (DISCRETE, [0] * 63, r"shape \(3,\).*got list of shape \(63,\): \[0, 0, 0, .*\.\.\.$"),
    # one-hot rows
    (
        CHOICES,
        np.eye(4)[:3],
        r"shape \(3,\).*got an array of .*; instead of one-hot rows, pass numpy.argmax\(actions, -1\)$",
    ),
    (
        NESTED,
        nest(keys=(np.eye(4, dtype=int)[:3], np.zeros((3, 2), int))),
        r"pass numpy.argmax\(actions\['keys'\]\[0\], -1\)$",
    ),
    (FROM_FIVE, [[0, 1], [1, 0], [0, 1]], r"got list of shape \(3, 2\): .*pass numpy.argmax\(actions, -1\) \+ 5$"),
    (DISCRETE, np.zeros((3, 999)), r"shape \(3,\).*got an array of shape \(3, 999\) and dtype float64$"),
    # another dtype
    (DISCRETE, [0, 0.5, 2], r"dtype int64 at actions, got .*, in which actions\[1\] is 0\.5$"),
    (DISCRETE, [0, "x", 2], r"dtype int64.*, in which actions\[1\] is 'x'$"),
    (DISCRETE, [0, None, 2], r"dtype int64.*, in which actions\[1\] is None$"),
    (DISCRETE, np.array([1.0, np.nan, 0]), r", in which actions\[1\] is nan$"),
    (DISCRETE, np.array([2.0**70, 0, 0]), r", in which actions\[0\] is 1\.18\d*e\+21$"),
    (BOX, np.zeros((3, 2, 2), complex), r"dtype float32.*complex128"),
    # out of range
    (DISCRETE, [0, -1, 2], r"0 <= action <= 999 at actions\[1\], got -1"),
    (DISCRETE, [0, 1, 1000], r"0 <= action <= 999 at actions\[2\], got 1000"),
    # nested
    (
        NESTED,
        nest(keys=([0, 4, 0], np.zeros((3, 2), int))),
        r"0 <= action <= 3 at actions\['keys'\]\[0\]\[1\], got 4",
    ),
    (NESTED, nest(push=np.zeros((2, 2))), r"shape \(3, 2\) and dtype float32 at actions\['push'\], got .*\(2, 2\)"),
    (NESTED, nest(keys=[0]), r"a tuple of 2 at actions\['keys'\], got list of 1: \[0\]"),
    (NESTED, {"push": 1}, r"keys \['push', 'keys'\] at actions, got a dict with the keys \['push'\]"),
    (NESTED, [nest()] * 3, r"a dict with the keys .* at actions, got list of 3"),
    # objects
    (TEXTS, "ab", "a sequence of 3 at actions, one for each env, got str: 'ab'"),
    (TEXTS, "abc", "a sequence of 3 at actions, one for each env, got str: 'abc'"),
    (TEXTS, ["a", "b", "c", "d"], "a sequence of 3 at actions, .*got list of 4"),
    (TEXTS, 3, "a sequence of 3 at actions, .*got int: 3"),
    (TEXTS, (), r"a sequence of 3 at actions, .*got \(\)"),
    (TEXTS, ["a", (i for i in range(3)), "c"], "actions that can be pickled, .* env 1"),
]


@pytest.mark.parametrize(("env_fns", "actions", "message"), BAD_ACTIONS)
def test_actions_that_do_not_fit(env_fns: Any, actions: Any, message: str) -> None:
    with begun(env_fns, backend="serial", num_workers=2) as pool:
        for send in (pool.send, pool.step):
            with pytest.raises(InvalidActionError, match=f"^expected .*{message}"):
                send(actions)
            assert pool.pending == 0
        assert pool.apply(lambda env: getattr(env, "total_steps", 0)) == [0, 0, 0]
        pool.step(pool.action_space.sample())


# -- env_ids ---------------------------------------------------------------------------------------------


BAD_IDS: list[tuple[Any, str]] = [
    *[(ids, "") for ids in ([-1], [2**40], ["a"], [1.5], [None], [[0], [1]], 1, "01", [True, False, True])],
    ([1, 9], "got 9 at env_ids[1]"),
    ([2, 1, 2], "got 2 again at env_ids[2]"),
    *[(np.array(ids), "") for ids in ([1, 1], [1, 4], [-1, 1], [1.0, 2.0], [[0], [1]])],
    (np.array([2**63, 1], np.uint64), ""),
    (np.array([True, False]), "; for a mask, pass numpy.flatnonzero(mask)"),
]


@pytest.mark.parametrize(("env_ids", "message"), BAD_IDS)
def test_wrong_env_ids(env_ids: Any, message: str) -> None:
    with begun(counting(3), backend="serial") as pool:
        n = len(env_ids) if isinstance(env_ids, (list, np.ndarray)) else 1
        for call in (
            lambda: pool.send([1] * n, env_ids=env_ids),
            lambda: pool.step([1] * n, env_ids=env_ids),
            lambda: pool.send_reset(env_ids=env_ids),
            lambda: pool.request_obs(env_ids=env_ids),
            lambda: pool.call("pid", env_ids=env_ids),
            lambda: pool.set_attr("tag", 1, env_ids=env_ids),
            lambda: pool.set_reset_options({}, env_ids=env_ids),
        ):
            with pytest.raises((ValueError, TypeError), match=r"^expected .*env_ids.* 0 (and|to) 2, got") as raised:
                call()
            assert message in str(raised.value)
        assert_untouched(pool)
        assert pool.get_attr("episodes") == [1] * 3


@pytest.mark.parametrize(
    "env_ids",
    [[2, 0], (2, 0), [np.int8(2), 0], {2: "a", 0: "b"}, iter([2, 0]), np.array([2, 9, 0])[::2], np.array([[2, 0]])[0]]
    + [np.array([2, 0], dtype) for dtype in (np.int8, np.int64, np.uint64, ">i8")],
)
def test_env_ids_of_many_kinds(env_ids: Any) -> None:
    with begun(counting(3), backend="serial") as pool:
        pool.send([7, 8], env_ids=env_ids)
        batch = pool.recv()
        assert dict(zip(batch.env_ids.tolist(), batch.rewards.tolist(), strict=True)) == {2: 7.0, 0: 8.0}


def test_empty_env_ids_select_no_env() -> None:
    with begun(counting(2), backend="serial") as pool:
        pool.send([], env_ids=[])
        assert pool.pending == 0
        assert pool.call("pid", env_ids=[]) == []
        pool.set_attrs("tag", [], env_ids=[])
        for call in (lambda: pool.reset(env_ids=[]), lambda: pool.step([], [])):
            with pytest.raises(ValueError, match="to have at least one env, got none; nothing was sent"):
                call()


# -- seeds and options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": [1, 2]}, ValueError, "expected 3 seeds, one for each env to reset, got 2"),
        ({"seed": ["a", 1, 2]}, TypeError, "expected an int or None as the seed of env 0, got 'a'"),
        ({"seed": [1, 2.5, 2]}, TypeError, "seed of env 1, got 2.5"),
        ({"seed": 1.5}, TypeError, "expected seed to be an int, None, or a sequence .*, got 1.5"),
        ({"seed": "abc"}, TypeError, "seed"),
        ({"options": [{}, {}]}, ValueError, "expected 3 reset options, one for each env to reset, got 2"),
        ({"options": 5}, TypeError, "expected options to be a dict, None, or a sequence .*, got 5"),
        ({"options": "level"}, TypeError, "got 'level'"),
        ({"options": [1, {}, {}]}, TypeError, "expected a dict or None as the options of env 0, got 1"),
    ],
)
def test_wrong_seeds_and_options(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with Pool(counting(3), backend="serial") as pool:
        pool.set_reset_options({"level": 5})
        for call in (pool.reset, pool.set_reset_options) if "options" in arguments else (pool.reset,):
            with pytest.raises(error, match=message):
                call(**arguments)
            assert pool.pending == 0
        assert pool.get_attr("episodes") == [0] * 3
        pool.reset()
        assert pool.get_attr("last_options") == [{"level": 5}] * 3


# -- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_workers": 0}, ValueError, "num_workers .* from 1 to 3 .* got 0"),
        ({"num_workers": 4}, ValueError, "from 1 to 3 .*got 4"),
        ({"num_workers": "many"}, ValueError, "got 'many'"),
        ({"num_workers": 1.0}, ValueError, "got 1.0"),
        ({"num_workers": True}, ValueError, "got True"),
        ({"backend": "cloud"}, ValueError, "backend to be one of .* got 'cloud'"),
        ({"autoreset": "never"}, ValueError, "autoreset to be one of .* got 'never'"),
        ({"autoreset": Enum("Mode", "SAME_STEP").SAME_STEP}, ValueError, "autoreset to be one of"),  # type: ignore[attr-defined]
        ({"autoreset": ["next_step"]}, ValueError, "autoreset to be one of"),
        ({"faults": "retry"}, ValueError, "faults to be 'raise', 'restart' or a FaultPolicy, got"),
        ({"faults": None}, TypeError, "faults to be"),
        ({"faults": {"on_fault": "raise"}}, TypeError, "faults to be"),
        ({"faults": True}, TypeError, "faults to be 'raise', 'restart' or a FaultPolicy, got"),
        ({"seeding": "often"}, ValueError, r"seeding to be one of \('gymnasium', 'per_episode'\), got 'often'"),
        ({"frames": 0}, ValueError, "frames.* got 0"),
        ({"frames": 64}, ValueError, "frames.* got 64"),
        ({"frames": 2.5}, ValueError, "frames.* got 2.5"),
        ({"spares": -1}, ValueError, "spares to be an int from 0 to 2"),
        ({"spares": 3}, ValueError, "spares to be an int from 0 to 2"),
        ({"spares": True}, ValueError, "spares to be an int"),
        ({"object_bytes": 4095}, ValueError, "object_bytes .* from 4096 up, got 4095"),
        ({"object_bytes": 1e6}, ValueError, "object_bytes .* got 1000000.0"),
        ({"max_concurrency": "all"}, ValueError, "max_concurrency .* got 'all'"),
        ({"start_method": "teleport", "backend": "process"}, ValueError, "start_method .* 'spawn'.* got 'teleport'"),
        ({"start_timeout": -1}, ValueError, "start_timeout .* got -1"),
        ({"threads_per_worker": 0}, ValueError, "threads_per_worker .* got 0"),
        ({"preload": "numpy"}, TypeError, r"preload .* got 'numpy'"),
        ({"observation_space": 3}, TypeError, "observation_space .* got 3"),
    ],
)
def test_wrong_settings(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^expected .*{message}"):
        Pool(counting(3), **{"backend": "serial", **options})


@pytest.mark.parametrize(("name", "mode"), [*GYMNASIUM_MODES.items(), ("same_step", "SameStep")])
def test_the_pool_accepts_gymnasiums_autoreset_modes(name: str, mode: Any) -> None:
    with Pool(counting(1, length=1), autoreset=mode, backend="serial") as pool:
        assert pool.autoreset == name
        pool.reset()
        assert (pool.step([1]).final_obs is not None) == (name == "same_step")


ALL_OPTIONS = "help(remuda.PoolOptions) has all options"


@pytest.mark.parametrize(
    ("cls", "keyword", "advice"),
    [
        (Pool, "num_worker", "did you mean num_workers=?"),
        (FaultPolicy, "step_timeou", "did you mean step_timeout=?"),
        (CrashDir, "max_file", "did you mean max_files=?"),
        (FaultPolicy, "zzz", None),
        (CrashDir, "zzz", None),
        (Pool, "zzz", ALL_OPTIONS),
        (Pool, "shared_memory", "arrays always travel through shared memory: leave it out"),
        (Pool, "env_workers", ALL_OPTIONS),  # similar to pin_workers, but no misspelling
        (Pool, "directory", "did you mean crash_dir=CrashDir(directory=...)?"),
        (Pool, "n_workers", "did you mean num_workers=?"),  # as similar to pin_workers
        (Pool, "env_factory", ALL_OPTIONS),
        (Pool, "timeout", "use start_timeout=, or a deadline, as in faults=remuda.FaultPolicy(step_timeout=...)"),
    ],
)
def test_the_error_of_an_unknown_keyword_names_the_keyword_that_was_meant(
    cls: type, keyword: str, advice: str | None
) -> None:
    arguments = {Pool: (counting(1),), FaultPolicy: (), CrashDir: ("records",)}[cls]
    with pytest.raises(TypeError) as raised:
        cls(*arguments, **{keyword: 2})
    text = f"{cls.__name__}() got an unexpected keyword argument '{keyword}'"
    assert str(raised.value) == (f"{text}; {advice}" if advice else text)


def test_the_error_of_an_unknown_argument_of_a_method_names_the_pool() -> None:
    with Pool(counting(1), backend="serial") as pool:
        for method in ("reset", "step", "recv", "rollout"):
            with pytest.raises(TypeError, match=rf"^Pool.{method}\(\) got an unexpected keyword argument 'zzz'"):
                getattr(pool, method)(zzz=1)


def test_a_pool_without_envs_is_refused() -> None:
    with pytest.raises(ValueError, match="^expected .*at least one env, got an empty list"):
        Pool([], num_workers=None)


# -- calls in a wrong state ------------------------------------------------------------------------------


def test_recv_with_impossible_limits() -> None:
    wrong: list[dict[str, Any]] = [{"min_envs": number} for number in (-1, 1.5, 4)]
    wrong += [{"max_envs": -1}, {"max_envs": "a"}, {"timeout": "soon"}, {"timeout": float("nan")}, {"order": "random"}]
    with Pool(counting(3), backend="serial") as pool:
        pool.send_reset()
        for arguments in wrong:
            with pytest.raises((ValueError, TypeError), match=f"expected {next(iter(arguments))} .*, got"):
                pool.recv(**arguments)
        assert len(pool.recv()) == 3


def test_a_timeout_that_is_no_number_is_refused_without_effect() -> None:
    with Pool(counting(2), backend="serial") as pool:
        call = pool.call_async("echo")
        for wait in (lambda: call.result(timeout="soon"), lambda: pool.close(timeout="soon")):  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="expected timeout to be a number of seconds or None, got 'soon'"):
                wait()
        assert not pool.closed
        assert call.result() == [((), {})] * 2


@pytest.mark.parametrize("terminate", [False, True])
def test_calls_after_close(terminate: bool) -> None:
    pool = Pool(counting(2), backend="serial")
    call = pool.call_async("pid")
    pool.close(terminate=terminate)
    assert pool.closed
    assert pool.pending == 0
    uses: list[Callable[[], Any]] = [
        pool.reset, lambda: pool.step([0, 0]), lambda: pool.send([0, 0]), pool.send_reset, pool.request_obs, pool.recv,
        pool.discard, pool.render, pool.stats, lambda: pool.call("pid"), lambda: pool.call_async("pid"),
        lambda: pool.apply(id), lambda: pool.get_attr("tag"), lambda: pool.set_attr("tag", 1),
        lambda: pool.set_attrs("tag", [1, 2]),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(ClosedError, match="the pool is closed; make a new one"):
            use()
    if terminate:
        with pytest.raises(ClosedError):
            call.result()
    else:
        assert len(call.result()) == 2  # close answered the call before it closed the envs
    pool.close()
    pool.close(terminate=True)
    assert "closed" in repr(pool)


def test_all_errors_have_one_base() -> None:
    import remuda.errors

    classes = [c for c in vars(remuda.errors).values() if isinstance(c, type) and issubclass(c, Exception)]
    assert [c for c in classes if not issubclass(c, RemudaError)] == [RemoteTraceback]
