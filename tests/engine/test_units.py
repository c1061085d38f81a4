"""The small pure pieces of the engine."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_envs import CountingEnv, Falsy, SampleEnv, assert_same, counting, hooked

from remuda import (
    CloseTimeoutError,
    EnvError,
    EnvProgress,
    EnvTimeoutError,
    Failure,
    Fault,
    Infos,
    InvalidEnvError,
    Pool,
    PoolStats,
    RemoteTraceback,
    ResourceError,
    RestartLimitError,
    SpaceMismatchError,
    StateError,
    WorkerDiedError,
    _core,
    errors,
)
from remuda._engine.pool.arguments import check_env_ids, check_limit, check_timeout
from remuda._engine.pool.calls import Call
from remuda._engine.pool.infos import Extras, InfoColumns
from remuda._engine.pool.seeding import options_for, reset_arguments, seeds_for
from remuda._engine.startup.advice import (
    SWITCH_SECONDS,
    StepCost,
    advice,
    batch_seconds,
    best_num_workers,
    measure_steps,
    observed_cost,
)
from remuda._engine.startup.space_checks import check_agreement
from remuda._engine.supervision.changes import Changes
from remuda._engine.supervision.faults import Faults
from remuda._system.memory import available_memory, check_memory
from remuda._wire.codec import SpaceCodec
from remuda._wire.layout import InfoColumn, Layout

MICROSECOND = 1e-6

# -- advice ----------------------------------------------------------------------------------------------


def cost(wall: float, cpu: float | None = None) -> StepCost:
    return StepCost(wall * MICROSECOND, (wall if cpu is None else cpu) * MICROSECOND)


@pytest.mark.parametrize(
    ("step", "num_envs", "cores", "best"),
    [
        (cost(5), 64, 2, 2),  # cheap: as many workers as cores
        (cost(5), 1, 8, 1),
        (cost(10_000), 64, 8, 8),  # dear, but all CPU: the cores are the limit
        (cost(10_000, 1), 64, 2, 64),  # it only waits: all at the same time
        (cost(10_000, 1), 4, 8, 4),
    ],
)
def test_the_best_number_of_workers(step: StepCost, num_envs: int, cores: int, best: int) -> None:
    assert best_num_workers(step, num_envs, cores) == best


costs = st.builds(lambda wall, share: StepCost(wall, wall * share), st.floats(1e-7, 10), st.floats(0, 1))


@given(costs, st.integers(1, 500), st.integers(1, 128))
def test_the_best_number_is_possible_and_nearly_the_fastest(step: StepCost, num_envs: int, cores: int) -> None:
    best = best_num_workers(step, num_envs, cores)
    assert 1 <= best <= num_envs
    time = batch_seconds(step, num_envs, best, cores)
    for other in {1, cores, num_envs} - {best}:
        if other <= num_envs:
            assert time <= 1.2 * batch_seconds(step, num_envs, other, cores)


@given(costs, st.integers(1, 500), st.integers(1, 128), st.data())
def test_advice_is_given_when_it_is_worth_it_and_names_its_figures(
    step: StepCost, num_envs: int, cores: int, data: st.DataObject
) -> None:
    num_workers = data.draw(st.integers(1, num_envs))
    best = best_num_workers(step, num_envs, cores)
    gain = batch_seconds(step, num_envs, num_workers, cores) / batch_seconds(step, num_envs, best, cores)
    text = advice(step, num_envs, num_workers, cores)
    assert (text is not None) == (best != num_workers and gain >= 3)
    if text:
        assert f"num_workers={best} would step these {num_envs} envs" in text
        assert f"than num_workers={num_workers}:" in text
        assert f"{cores} cores" in text
    assert advice(step, num_envs, best, cores) is None


def stats(**changes: Any) -> PoolStats:
    return dataclasses.replace(PoolStats(100, 10, 1.0, 1.0, 0.5, (50, 50)), **changes)


def test_observed_cost_tells_waiting_from_queueing_and_computing() -> None:
    busy = observed_cost(stats(env_seconds=1.0, cpu_seconds=1.0), 0.0, num_workers=2, cores=2)
    assert (busy.wall, busy.cpu) == pytest.approx((0.01, 0.01))
    waiting = observed_cost(stats(env_seconds=1.0, cpu_seconds=0.1), 0.0, num_workers=2, cores=2)
    assert (waiting.wall, waiting.cpu) == pytest.approx((0.01, 0.001))
    queueing = observed_cost(stats(env_seconds=1.0, cpu_seconds=0.1), 0.9, num_workers=2, cores=2)
    assert (queueing.wall, queueing.cpu) == pytest.approx((0.001, 0.001))
    crowded = observed_cost(stats(env_seconds=1.0, cpu_seconds=1.0), 0.0, num_workers=9, cores=2)
    assert crowded.cpu == pytest.approx(0.01 - SWITCH_SECONDS)


def test_a_step_is_measured_where_it_runs() -> None:
    env = CountingEnv(length=3)
    measured = measure_steps(env, seconds=0.001)
    assert env.total_steps >= 10
    assert env.episodes > 3
    assert measured.wall > 0


class OwnStepsEnv(CountingEnv):
    """Cannot be reset without options; says itself how it is stepped."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options == {"level": 1}
        return super().reset(seed=seed, options=options)

    def steps_to_measure(self) -> Iterator[None]:
        while True:
            self.reset(options={"level": 1})
            over = False
            while not over:
                over = self.step(0)[2]
                yield


def test_an_env_is_measured_as_it_says_it_is_run() -> None:
    env = OwnStepsEnv(length=3)
    assert measure_steps(env, seconds=0.001).wall > 0
    assert env.total_steps >= 10
    with Pool([OwnStepsEnv] * 2, num_workers="auto") as pool:
        pool.reset(options={"level": 1})


def stumble(*_: Any) -> None:
    raise ValueError("cannot be played at random")


def test_auto_says_so_where_an_env_cannot_be_measured() -> None:
    with pytest.raises(InvalidEnvError, match=r"num_workers='auto', got: env 0 .*ValueError.*; say how many") as caught:
        Pool(hooked(2, (0,), step=stumble), num_workers="auto")
    assert isinstance(caught.value.__cause__, EnvError)


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_auto_picks_a_possible_number(backend: Any) -> None:
    with Pool(counting(6), num_workers="auto", backend=backend) as pool:
        assert 1 <= pool.num_workers <= 6
        assert pool.reset().obs[:, 0].tolist() == list(range(6))


def test_advice_is_said_once_and_only_if_wanted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda._engine.pool.pool.advice", lambda *_: "do something else")
    for advise in (True, False):
        with caplog.at_level(logging.WARNING, "remuda"), Pool(counting(1), backend="thread", advise=advise) as pool:
            pool.reset()
            for _ in range(600):
                pool.step([0])
    assert [record.getMessage() for record in caplog.records] == ["do something else"]


# -- seeds, options, arguments ---------------------------------------------------------------------------

ids = st.lists(st.integers(0, 50), unique=True, max_size=8)


@given(st.integers(-(2**70), 2**70), ids)
def test_an_int_seeds_each_env_by_its_id(seed: int, env_ids: list[int]) -> None:
    assert seeds_for(seed, env_ids) == [seed + i for i in env_ids]


@given(st.lists(st.one_of(st.none(), st.integers()), max_size=8))
def test_a_sequence_has_a_seed_for_each(seeds: list[int | None]) -> None:
    assert seeds_for(seeds, range(len(seeds))) == seeds
    assert seeds_for(None, range(3)) == [None] * 3
    with pytest.raises(ValueError, match=f"expected {len(seeds) + 1} seeds"):
        seeds_for(seeds, range(len(seeds) + 1))


def test_options_are_copied() -> None:
    options = {"a": 1}
    (one,) = options_for([options], [0])
    assert one == options
    assert one is not options
    assert options_for(options, [0, 1])[1] is not options


def test_reset_is_called_with_what_was_given() -> None:
    assert reset_arguments(None, None) is None
    assert reset_arguments(0, None) == {"seed": 0}
    assert reset_arguments(None, {}) == {"options": {}}
    assert reset_arguments(1, {"x": 2}) == {"seed": 1, "options": {"x": 2}}


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


# -- agreement -------------------------------------------------------------------------------------------


def test_equal_spaces_agree_whatever_they_are() -> None:
    class Odd(spaces.Space[int]):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd)

        def __hash__(self) -> int:
            return 1

    check_agreement("observation", Odd(), "env 0", [Odd(), Odd()])


@given(st.integers(1, 4), st.integers(1, 4))
def test_bounds_do_not_count(low: int, high: int) -> None:
    check_agreement("action", spaces.Discrete(low), "env 0", [spaces.Discrete(high), spaces.Discrete(2, start=high)])
    check_agreement("x", spaces.Text(low), "env 0", [spaces.Text(high)])


def test_who_disagrees_is_grouped_by_how() -> None:
    box = spaces.Box(0, 1, (2,))
    odd: list[spaces.Space[Any]] = [
        box,
        spaces.Box(0, 1, (3,)),
        spaces.Box(0, 1, (2,), np.float64),
        spaces.Box(0, 1, (3,)),
        spaces.Text(2),
    ]
    with pytest.raises(SpaceMismatchError) as raised:
        check_agreement("observation", box, "env 0", odd)
    assert "envs 1, 3: shape (3,) instead of (2,)" in str(raised.value)
    assert "env 2: dtype float64 instead of float32" in str(raised.value)
    assert "env 4: another structure (Text" in str(raised.value)
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert (error.kind, error.spaces) == ("observation", tuple(odd))


# -- memory ----------------------------------------------------------------------------------------------


def machine(root: Path, available_kb: int | None = None, **files: str) -> Path:
    (root / "proc").mkdir()
    if available_kb is not None:
        (root / "proc/meminfo").write_text(
            f"MemTotal: 999999999 kB\nMemAvailable:   {available_kb} kB\nBuffers: 1 kB\n"
        )
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("-", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def in_groups(root: Path, cgroup: str) -> Path:
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


# A container sees its group as the root one, and its path either from there or as the host has it.
CONTAINER = "4:memory:/docker/0123\n0::/\n"


def test_memory_of_a_machine(tmp_path: Path) -> None:
    assert available_memory(machine(tmp_path, 1000)) == 1_024_000


def test_memory_of_a_machine_that_does_not_say(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    check_memory(2**60, tmp_path)


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({"memory-max": "5000\n", "memory-current": "2000\n"}, 3000),
        ({"memory-max": "max\n", "memory-current": "2000\n"}, 1_024_000),
        ({"memory-max": "5000\n", "memory-current": "9000\n"}, 0),
        ({"memory-max": "5000\n"}, 1_024_000),
        ({"memory__memory-limit_in_bytes": "7000", "memory__memory-usage_in_bytes": "1000"}, 6000),
        ({"memory__memory-limit_in_bytes": "9223372036854771712", "memory__memory-usage_in_bytes": "1000"}, 1_024_000),
    ],
)
def test_memory_of_a_container(files: dict[str, str], available: int, tmp_path: Path) -> None:
    assert available_memory(in_groups(machine(tmp_path, 1000, **files), CONTAINER)) == available


def group(of: str, limit: int | str, used: int, files: int = 0) -> dict[str, str]:
    """A directory of version 2."""
    stat = f"anon 5\ninactive_file {files // 2}\nactive_file {files - files // 2}\n"
    names = {"memory-max": limit, "memory-current": used, "memory-stat": stat}
    return {f"{of}{name}": str(value) for name, value in names.items()}


JOB = "slurm__job_7"
NESTED = {
    "its own": (group(f"{JOB}__step__", 5000, 2000) | group("slurm__", 90_000, 3000), 3000),
    "the job's": (group(f"{JOB}__step__", "max", 2000) | group(f"{JOB}__", 8000, 4000), 4000),
    "the farthest": (group(f"{JOB}__step__", 9000, 2000) | group("slurm__", 4000, 3000), 1000),
    "files do not count": (group(f"{JOB}__", 8000, 7999, files=7000), 7001),
    "older": (
        {
            f"memory__{JOB}__memory-limit_in_bytes": "6000",
            f"memory__{JOB}__memory-usage_in_bytes": "5000",
            f"memory__{JOB}__memory-stat": "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n",
            "memory__memory-limit_in_bytes": "9223372036854771712",
            "memory__memory-usage_in_bytes": "1000",
        },
        1500,
    ),
    "none": (group(f"{JOB}__step__", "max", 2000), 1_024_000),
    "nobody's": (group("slurm__job_8__", 100, 100), 1_024_000),
}


@pytest.mark.parametrize("tightest", NESTED)
def test_memory_of_a_job_within_groups(tightest: str, tmp_path: Path) -> None:
    """The tightest of all the groups around us is what the kernel kills by."""
    files, available = NESTED[tightest]
    root = in_groups(machine(tmp_path, 1000, **files), "3:cpu,memory:/slurm/job_7/step\n0::/slurm/job_7/step\n")
    assert available_memory(root) == available


def test_too_little_memory_is_an_error_with_the_figures(tmp_path: Path) -> None:
    root = machine(tmp_path, 3 * 1024)
    check_memory(3 * 2**20, root)
    with pytest.raises(
        MemoryError, match=r"expected 5 MB of free memory for the pool's batches, got 3 MB \(as .*meminfo has it\); use"
    ):
        check_memory(5 * 2**20, root)


@pytest.fixture
def nobody_gives_way() -> Iterator[None]:
    """No thread is made to let another run, so another one runs only where the GIL is let go of."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def test_other_threads_run_while_memory_is_reserved(nobody_gives_way: None) -> None:
    assert any(_runs_beside(lambda: _core.Arena.create(1 << 28)) for _ in range(20))


def test_other_threads_run_while_memory_is_given_back(nobody_gives_way: None) -> None:
    assert any(_runs_beside([_core.Arena.create(1 << 28)].pop) for _ in range(20))


def _runs_beside(work: Callable[[], Any]) -> bool:
    go, ran = threading.Event(), []

    def run() -> None:
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    go.set()
    work()
    did_run = bool(ran)
    thread.join()
    return did_run


# -- infos -----------------------------------------------------------------------------------------------

NUMBERS: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.lists(st.integers(0, 9), min_size=2, max_size=2).map(np.array),
    st.floats().map(np.array),
]
THINGS: list[st.SearchStrategy[Any]] = [st.text(max_size=3), st.none(), st.just([1, 2]), st.just((None,))]
KEYS = st.sampled_from(["a", "b", "_a", "c", "final_obs", "é", 7])


@st.composite
def info_batches(draw: st.DrawFn, depth: int = 1) -> list[dict[Any, Any]]:
    """Infos of some envs: of one kind for each key, as Gymnasium's arrays need it, in an order of its own for each."""
    n = draw(st.integers(1, 5))
    infos: list[dict[Any, Any]] = [{} for _ in range(n)]
    for key in draw(st.lists(KEYS, unique=True, max_size=5)):
        if depth and key != "final_obs" and draw(st.integers(0, 4)) == 0:
            values = draw(info_batches(depth - 1))
        else:
            kind = draw(st.sampled_from(NUMBERS if draw(st.booleans()) else THINGS))
            values = draw(st.lists(kind, min_size=n, max_size=n))
        for info, value in zip(infos, values, strict=False):
            if draw(st.booleans()):
                info[key] = value
    return infos


def theirs(infos: list[dict[Any, Any]]) -> dict[Any, Any]:
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = len(infos)
    stacked: dict[Any, Any] = {}
    for i, info in enumerate(infos):
        stacked = envs._add_info(stacked, info, i)
    return stacked


@given(info_batches())
@settings(max_examples=300, deadline=None)
def test_stacked_infos_equal_gymnasiums(infos: list[dict[Any, Any]]) -> None:
    try:
        expected = theirs(infos)
    except Exception:
        return
    extras: Any = {i: (0, [pickle.dumps(([], info, None, None))]) for i, info in enumerate(infos)}
    ours = Infos(np.zeros(len(infos), np.uint64), [], [], Extras(extras), lambda row: None)
    assert_same(ours.stack(), expected)
    assert_same(list(ours), infos)


@given(
    st.lists(
        st.sampled_from(NUMBERS).flatmap(lambda kind: st.lists(kind, min_size=4, max_size=4)), min_size=1, max_size=6
    ),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_infos_in_columns_equal_gymnasiums(table: list[list[Any]], data: st.DataObject) -> None:
    """`table` has the values of each key for 4 envs."""
    book = InfoColumns(room=10_000)
    infos: list[dict[str, Any]] = [{} for _ in range(4)]
    mask = np.zeros(4, np.uint64)
    arrays = []
    for k, values in enumerate(table):
        key = f"key {k}"
        (column,) = book.assign({key: values[0]}, [key])
        arrays.append(np.zeros((4, *column.shape), column.dtype))
        for i, value in enumerate(values):
            if data.draw(st.booleans()):
                arrays[-1][i] = value
                infos[i][key] = value
                mask[i] |= np.uint64(1 << k)
    ours = Infos(mask, book.columns, arrays, Extras(None), lambda row: None)
    assert_same(ours.stack(), theirs(infos))
    assert_same(list(ours), infos)


def test_columns_are_given_once_while_there_is_room() -> None:
    book = InfoColumns(room=32)
    assert [c.key for c in book.assign({"a": 1, "b": 2.0, "s": "x"}, ["a", "b", "s"])] == ["a", "b"]
    assert book.assign({"a": 1}, ["a"]) == []
    (vector,) = book.assign({"v": np.zeros(2, np.float32)}, ["v"])
    assert vector == InfoColumn("v", np.ndarray, np.dtype(np.float32), (2,), 16)
    assert book.assign({"w": np.zeros(2)}, ["w"]) == []  # 8 bytes are left
    assert [c.offset for c in book.assign({"x": True, "y": 1}, ["x", "y"])] == [24]
    assert [c.key for c in book.columns] == ["a", "b", "v", "x"]


def test_no_more_columns_than_bits() -> None:
    book = InfoColumns(room=10_000)
    info = {f"k{i}": i for i in range(100)}
    assert len(book.assign(info, list(info))) == 64


@pytest.mark.parametrize(
    "value", [None, "x", [1], {}, np.zeros(17), np.array(["a"]), np.datetime64(1, "s"), np.array([None])]
)
def test_what_gets_no_column(value: Any) -> None:
    assert InfoColumns(room=10_000).assign({"a": value}, ["a"]) == []


def test_infos_are_a_sequence() -> None:
    infos = Infos(np.zeros(3, np.uint64), [], [], Extras(None), lambda row: None)
    assert (len(infos), list(infos), infos[1:], infos[-1]) == (3, [{}] * 3, [{}] * 2, {})
    assert infos.stack() == {}
    assert repr(infos) == "Infos([{}, {}, {}])"
    assert {} in infos
    with pytest.raises(IndexError):
        infos[3]


# -- spaces and layout -----------------------------------------------------------------------------------


def test_a_space_is_flattened_depth_first() -> None:
    space = spaces.Dict(b=spaces.Tuple((spaces.Discrete(3), spaces.Text(4))), a=spaces.Box(0, 1, (2,)))
    codec = SpaceCodec(space)
    assert [(c.path, c.shape) for c in codec.columns] == [("['b'][0]", ()), ("['a']", (2,))]
    assert codec.objects == [("['b'][1]", spaces.Text)]
    value = {"a": np.array([0.5, 1]), "b": (2, "hey")}
    arrays, objects = codec.flatten(value)
    assert [a.dtype for a in arrays] == [np.int64, np.float32]
    assert objects == ["hey"]
    assert_same(
        codec.build_one([array[()] for array in arrays], objects),
        {"a": np.array([0.5, 1], np.float32), "b": (np.int64(2), "hey")},
    )


def test_parts_of_the_memory_do_not_overlap() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (3, 5), np.uint8), b=spaces.Discrete(2), c=spaces.Box(0, 1, (0,)))
    layout = Layout((2, 2, 1), 3, "same_step", space, space)
    plan = layout.plan
    sizes = [c.nbytes for c in layout.observation.columns]
    columns = [8, 1, 1, 8, layout.info_bytes, *sizes, *sizes]
    starts = [*plan.actions, *plan.columns]
    lengths = [size * 5 for size in sizes] + [size * plan.rows for size in columns]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert all(start % 64 == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= plan.bytes
    copy = pickle.loads(pickle.dumps(layout))
    assert (copy.plan.bytes, copy.plan.columns) == (plan.bytes, plan.columns)


# -- faults and errors -----------------------------------------------------------------------------------


def failure(env_id: int | None = 1, exception: BaseException | None = None) -> Failure:
    return Failure(env_id, 0, "step", exception, "ValueError", "wrong", "Traceback ...\nValueError: wrong")


def test_failures_are_told_together_in_order() -> None:
    faults = Faults(3, in_callers_thread=False)
    faults.not_reset.clear()
    changes = Changes()
    for env_id in (2, None, 0):
        faults.add_failure(failure(env_id), changes, env_id)
    changes.make()
    assert faults.not_reset == {0, 2}
    with pytest.raises(EnvError) as raised:
        faults.raise_any()
    assert [f.env_id for f in raised.value.failures] == [None, 0, 2]
    assert raised.value.env_ids == (0, 2)
    assert str(raised.value) == (
        "all envs (worker 0) raised ValueError in step: wrong; envs 0, 2 (worker 0) raised ValueError in step: wrong"
    )
    faults.raise_any()


def test_the_cause_is_the_exception_or_its_text() -> None:
    error = ValueError("wrong")
    assert EnvError([failure(exception=error)]).__cause__ is error
    falsy = Falsy()
    assert EnvError([failure(exception=falsy)]).__cause__ is falsy
    cause = EnvError([failure()]).__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "ValueError: wrong" in str(cause)


def test_faults_are_raised_together_deaths_first() -> None:
    faults = Faults(4, in_callers_thread=False)
    deaths = [
        WorkerDiedError(worker=w, pid=9, exitcode=-9, env_ids=(2 * w, 2 * w + 1), operation="step") for w in range(2)
    ]
    changes = Changes()
    faults.add_failure(failure(), changes)
    for death in deaths:
        faults.add_death(death, changes, tell=True)
    changes.make()
    with pytest.raises(WorkerDiedError) as raised:
        faults.raise_any()
    assert raised.value is deaths[0]
    second, raising = raised.value.others
    assert second is deaths[1]
    assert isinstance(raising, EnvError)
    assert f"; and {second}; and {raising}" in str(raised.value)
    faults.raise_any()  # they were told


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "its exit code is unknown"),
        (0, "it exited with code 0"),
        (-9, "killed by SIGKILL (often the kernel, out of memory"),
        (-11, "killed by SIGSEGV (native code"),
        (-50, "killed by signal 50"),
    ],
)
def test_exit_codes_in_words(code: int | None, text: str) -> None:
    assert errors.describe_exitcode(code).startswith(text)
    death = WorkerDiedError(worker=3, pid=77, exitcode=code, env_ids=[4, 5], operation="nothing")
    assert str(death).startswith(f"worker 3 (pid 77, envs 4, 5) died while idle: {text}")


def _no_wait(call: Call, timeout: float | None) -> None:
    pass


def test_a_call_counts_its_answers() -> None:
    call = Call(_no_wait, Faults(2, in_callers_thread=False))
    for sequence in (5, 3):
        call.expect(sequence, 0, 0)
    with pytest.raises(TimeoutError, match="2 of 2 envs have not answered within 1 s"):
        call.result(timeout=1)
    call.answer(3, [pickle.dumps("three")])
    assert not call.done
    call.answer(5, [pickle.dumps("five")])
    assert call.done
    assert call.result() == ["five", "three"]


def test_a_call_fails_with_all_its_failures() -> None:
    call = Call(_no_wait, Faults(2, in_callers_thread=False))
    for sequence in (1, 2):
        call.expect(sequence, 0, 0)
        call.fail(sequence, failure(sequence), Changes())
    for _ in range(2):
        with pytest.raises(EnvError) as raised:
            call.result()
        assert raised.value.env_ids == (1, 2)


# -- what a pool says of itself --------------------------------------------------------------------------


def test_a_pool_tells_what_its_envs_are() -> None:
    pool = Pool(counting(3), backend="serial", num_workers=2)
    assert pool.metadata == CountingEnv.metadata
    assert pool.metadata is not CountingEnv.metadata
    assert (pool.render_mode, pool.spec) == ("rgb_array", None)
    assert (pool.num_envs, pool.num_workers, pool.backend, pool.autoreset) == (3, 2, "serial", "next_step")
    assert pool.single_action_space == spaces.Discrete(1000)
    assert len(pool.observation_spaces) == len(pool.action_spaces) == 3
    assert repr(pool) == "<Pool of 3 envs, 2 serial workers>"
    assert repr(pool.reset()) == "<Batch of 3 envs>"
    pool.close()
    assert repr(pool) == "<Pool of 3 envs, closed>"


def test_an_env_whose_spec_cannot_be_pickled_has_none() -> None:
    def build() -> Any:
        env = CountingEnv()
        env.spec = EnvSpec("Held-v0", entry_point="pool_envs:CountingEnv", kwargs={"held": (i for i in range(3))})
        return env

    backends: list[Any] = ["serial", "process"]
    for backend in backends:
        with Pool([build], backend=backend) as pool:
            assert pool.spec is None
            assert pool.reset().obs.shape == (1, 4)


def test_a_space_that_cannot_be_pickled_is_told() -> None:
    class Stuck(spaces.Box):
        def __reduce__(self) -> Any:
            raise TypeError("this space stays here")

    fns = [lambda: SampleEnv(spaces.Discrete(2), spaces.Discrete(2)), lambda: _with_space(Stuck(0, 1))]
    with pytest.raises(
        EnvError, match=r"in build: expected spaces .* that can be pickled, got .*this space stays here"
    ):
        Pool(fns, num_workers=1, start_method="fork")


def _with_space(space: spaces.Space[Any]) -> CountingEnv:
    env = CountingEnv()
    env.observation_space = space
    return env


def test_every_error_can_be_pickled() -> None:
    died = WorkerDiedError(worker=1, pid=9, exitcode=-9, env_ids=(2, 3), operation="step", output="last words")
    late = EnvTimeoutError(worker=1, pid=9, exitcode=-9, env_ids=(2,), operation="reset")
    late.deadline, late.limit = "reset_timeout", 3.0
    where = EnvProgress(2, 0, 1, None, 1)
    fault = Fault(2, 1, "death", "step", where, died)
    for error in (
        died,
        late,
        EnvError([failure()]),
        RestartLimitError("max_restarts=0", [fault]),
        CloseTimeoutError(pids=[3], workers=[1]),
        ResourceError(24, "too few"),
        StateError("not now"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), copy.args) == (str(error), error.args)
        assert set(vars(copy)) == set(vars(error))
    assert pickle.loads(pickle.dumps(ResourceError(24, "too few"))).errno == 24
