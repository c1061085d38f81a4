"""The contents of a pool's trace: steps, resets, waits, faults, restarts, and named sections of the program."""

from __future__ import annotations

import errno
import gc
import gzip
import json
import threading
import time
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accidents import raise_value_error, wait_for_ever
from pool_envs import CountingEnv, Gate, HookedEnv, counting, hooked
from programs import kill, step_until_restarted
from traces import is_within, lines, load, names, slices
from vector_envs import plain

import remuda
from remuda import EnvError, FaultPolicy, Pool, StateError
from remuda._engine.tracing.perfetto import written_whole


def run(pool: Pool, steps: int) -> None:
    pool.reset(seed=0)
    for _ in range(steps):
        pool.step(np.zeros(pool.num_envs, np.int64))


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
def test_a_trace_has_every_step_and_reset_within_its_batch(backend: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with Pool([CountingEnv] * 5, num_workers=1 if backend == "serial" else 2, backend=backend) as pool:
        with pool.trace(path):
            run(pool, 3)
        run(pool, 1)  # this step is not traced
    counts = dict.fromkeys(("step", "reset"), 0)
    for event in slices(path):
        if event["cat"] in counts:
            counts[event["cat"]] += envs_in(event["name"])
    assert counts == {"step": 15, "reset": 5}
    assert names(path, "batch") == ["batch of 5"] * 4
    # excludes the first batch, since `reset` sends the resets before it waits
    first, *others = slices(path, "batch")
    for step in slices(path, "step"):
        assert sum(is_within(step, batch) for batch in others) == 1
    for wait in slices(path, "wait"):
        assert any(is_within(wait, batch) for batch in (first, *others))


def envs_in(name: str) -> int:
    first, _, last = name.rsplit(maxsplit=1)[-1].partition("-")
    return int(last or first) - int(first) + 1


def test_a_trace_names_the_slow_env_of_a_batch(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    slow = {2: lambda: HookedEnv(step=lambda *_: gate.wait())}
    with Pool([slow.get(i, CountingEnv) for i in range(4)], num_workers=2) as pool, pool.trace(tmp_path / "t") as trace:
        pool.reset()
        pool.send(np.zeros(4, np.int64))
        gate.await_arrival()
        with remuda.span("the env stands before the door"):
            pool.recv(min_envs=2)
        gate.open()
        pool.recv()
    (held,) = (event for event in slices(trace.path, "step") if event["name"] == "step env 2")
    (span,) = slices(trace.path, "span")
    assert held["ts"] <= span["ts"] and held["ts"] + held["dur"] >= span["ts"] + span["dur"]
    assert slices(trace.path, "batch")[-1]["args"]["last"] in ("env 2 of worker 1", "env 3 of worker 1")


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_an_autoreset_is_within_its_step(autoreset: Any, tmp_path: Path) -> None:
    with (
        Pool(counting(1, length=2), backend="serial", autoreset=autoreset) as pool,
        pool.trace(tmp_path / "run.json") as trace,
    ):
        run(pool, 6)
    steps = slices(trace.path, "step")
    resets = [event for event in slices(trace.path, "reset") if any(is_within(event, step) for step in steps)]
    assert len(resets) == {"next_step": 2, "same_step": 3}[autoreset]
    assert {event["name"] for event in resets} == {"reset env 0"}


def test_a_reset_in_advance_has_its_real_time(tmp_path: Path) -> None:
    gates = Gate(tmp_path, "reset"), Gate(tmp_path, "other")
    fns = [
        lambda: HookedEnv(length=1, autoreset=lambda _: gates[0].wait()),
        lambda: HookedEnv(step=lambda *_: gates[1].wait()),
    ]
    with Pool(fns, backend="thread", resets_ahead=True) as pool, pool.trace(tmp_path / "run.json") as trace:
        pool.reset()
        pool.send(np.zeros(2, np.int64))
        gates[0].let_pass()  # env 0 resets while env 1 still steps
        gates[1].let_pass()
        pool.recv()
        pool.send(np.zeros(2, np.int64))
        gates[1].let_pass()
        pool.recv()
    (ahead,) = (event for event in slices(trace.path, "reset") if "advance" in event["name"])
    assert ahead["name"] == "reset env 0 (in advance)"
    second = slices(trace.path, "batch")[1]
    assert ahead["ts"] < second["ts"] + second["dur"]  # env 1 was still in its first step


def test_a_trace_has_a_death_and_the_restart(tmp_path: Path) -> None:
    with Pool([CountingEnv] * 4, num_workers=2, faults="restart") as pool, pool.trace(tmp_path / "run.json") as trace:
        pool.reset()
        pid = kill(pool, 1)
        step_until_restarted(pool, 1, pid)
    restart = slices(trace.path, "restart")
    assert [event["name"] for event in restart] == ["is rebuilt"]
    assert len({event["tid"] for event in restart}) == 1
    assert "remuda-1" in lines(trace.path)[restart[0]["pid"], restart[0]["tid"]]
    (fault,) = (event for event in load(trace.path)["traceEvents"] if event["ph"] == "i")
    assert fault["name"].startswith("death") and "killed by SIGKILL" in fault["args"]["error"]


def test_a_hung_step_lasts_until_its_fault(tmp_path: Path) -> None:
    faults = FaultPolicy("restart", step_timeout=1.0)
    with Pool(hooked(2, step=wait_for_ever), faults=faults) as pool, pool.trace(tmp_path / "run.json") as trace:
        pool.reset()
        pool.step(np.zeros(2, np.int64))
    (hung,) = slices(trace.path, "fault")
    assert hung["name"] == "step env 1 (timeout)"
    assert hung["dur"] >= 1.0 * 1e6
    assert "step_timeout=1.0" in hung["args"]["error"]


def test_a_trace_has_an_exception(tmp_path: Path) -> None:
    with (
        Pool(hooked(2, step=raise_value_error), num_workers=1, backend="serial") as pool,
        pool.trace(tmp_path / "run.json") as trace,
    ):
        pool.reset()
        with pytest.raises(EnvError):
            pool.step(np.zeros(2, np.int64))
    (fault,) = (event for event in load(trace.path)["traceEvents"] if event["ph"] == "i")
    assert (fault["name"], "broken" in fault["args"]["error"]) == ("exception env 1", True)
    assert [event["name"] for event in slices(trace.path, "step") if "failed" in event["args"]] == ["step env 1"]


def test_parts_spares_and_vector_envs_are_traced(tmp_path: Path) -> None:
    with Pool([CountingEnv] * 4, num_workers=2) as pool, pool.trace(tmp_path / "parts.json") as trace:
        for half in pool.split(2):
            half.reset()
    assert names(trace.path, "batch") == ["batch of 2"] * 2
    with Pool([lambda: CountingEnv(length=2)] * 3, spares=1) as pool, pool.trace(tmp_path / "spares.json") as trace:
        run(pool, 6)
    assert {event["name"].split()[2] for event in slices(trace.path, "reset")} == {"0", "1", "2"}
    with (
        Pool(plain(2, 3), vector_size=3, num_workers=1) as pool,
        pool.trace(tmp_path / "vectors.json") as trace,
    ):
        run(pool, 2)
    assert {envs_in(name) for name in names(trace.path, "step")} <= {3, 6}


# -- start and stop ------------------------------------------------------------------------------------


def test_only_the_latest_events_are_kept(tmp_path: Path) -> None:
    with Pool([CountingEnv], backend="serial") as pool, pool.trace(tmp_path / "t", events=4) as trace:
        run(pool, 10)
    assert names(trace.path, "batch") == ["batch of 1"] * 2
    assert names(trace.path, "step") == ["step env 0"] * 2


def test_a_trace_of_all_pools_has_earlier_and_closed_pools_and_may_overlap_with_that_of_one(tmp_path: Path) -> None:
    options: Any = {"backend": "serial", "num_workers": 1}
    with Pool([CountingEnv], name="before", **options) as before:
        outer = before.trace(tmp_path / "outer.json")
        run(before, 1)
        with remuda.trace(tmp_path / "run.json") as trace:
            run(before, 1)
            with Pool([CountingEnv] * 2, name="within", **options) as within:
                run(within, 2)
        run(before, 1)
        outer.stop()
    assert len(names(outer.path, "batch")) == 6
    assert sorted(names(trace.path, "batch")) == ["batch of 1"] * 2 + ["batch of 2"] * 3
    assert {"pool before", "pool within"} <= set(lines(trace.path).values())


def test_a_trace_ends_with_its_pool_and_may_be_stopped_twice(tmp_path: Path) -> None:
    with Pool([CountingEnv], backend="serial") as pool:
        trace = pool.trace(tmp_path / "run.json")
        run(pool, 2)
    assert not trace.path.exists()
    trace.stop()
    written = trace.path.read_text()
    trace.path.write_text("")
    assert trace.stop() == trace.path and trace.path.read_text() == ""
    assert len(json.loads(written)["traceEvents"]) > 5
    with pytest.raises(StateError, match="expected an open pool to trace"):
        pool.trace(tmp_path / "again.json")


def test_a_trace_holds_no_reference_to_a_pool(tmp_path: Path) -> None:
    with remuda.trace(tmp_path / "run.json") as trace:
        pool = Pool([CountingEnv], backend="serial")
        run(pool, 2)
        collected = weakref.ref(pool)
        del pool
        gc.collect()
        assert collected() is None
    assert names(trace.path, "batch") == ["batch of 1"] * 3


def test_wrong_arguments_of_trace_are_refused(tmp_path: Path) -> None:
    with Pool([CountingEnv], backend="serial") as pool:
        for events in (0, 1.5):
            with pytest.raises(ValueError, match=f"expected events to be an int from 1 up, got {events}"):
                pool.trace(tmp_path / "t", events=events)  # type: ignore[arg-type]
        with pytest.raises(FileNotFoundError, match="make it first"):
            pool.trace(tmp_path / "nowhere" / "t")
        with pytest.raises(IsADirectoryError, match="expected the name of a file"):
            pool.trace(tmp_path)
        run(pool, 1)


def test_a_trace_that_is_not_stopped_is_written_at_exit(script: Any, tmp_path: Path) -> None:
    program = script(
        """
pool = Pool([CountingEnv] * 2, num_workers=1)
kept = trace(os.environ["REMUDA_TEST"] + "/forgotten.json")
pool.reset()
if os.fork() == 0:  # a copy has no part in it
    sys.exit()
os.wait()
"""
    )
    code, _, err = program.await_end()
    assert code == 0, err
    assert names(tmp_path / "forgotten.json", "batch") == ["batch of 2"]


# -- clocks --------------------------------------------------------------------------------------------


def test_times_of_a_trace_are_wall_clock_times(tmp_path: Path) -> None:
    with remuda.trace(tmp_path / "run.json") as trace:
        before = time.time_ns()
        with remuda.span("now"):
            pass
        after = time.time_ns()
    (span,) = slices(trace.path, "span")
    at = load(trace.path)["baseTimeNanoseconds"] + span["ts"] * 1000
    assert before - 1e6 <= at <= after + 1e6  # allows for the time between the readings of both clocks


# -- files ---------------------------------------------------------------------------------------------


def test_a_compressed_trace_is_the_same_and_an_interrupt_ends_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), remuda.trace(tmp_path / "run.json.gz") as trace, remuda.span("now"):
        raise KeyboardInterrupt
    with gzip.open(trace.path, "rt") as file:
        assert [event["name"] for event in json.load(file)["traceEvents"] if event["ph"] == "X"] == ["now"]


def test_on_a_full_disk_the_old_file_remains_and_the_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(OSError, match=r"No space left on device: '.*trace\.json'"), written_whole(path) as file:
        file.write("new")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


# -- spans of the program --------------------------------------------------------------------------------


def test_spans_are_nested_and_decorate_recursive_functions(tmp_path: Path) -> None:
    @remuda.span("down")
    def down(n: int) -> int:
        return n and down(n - 1)

    with remuda.trace(tmp_path / "run.json") as trace, remuda.span("update"):
        down(2)
    found = slices(trace.path, "span")
    assert [event["name"] for event in found] == ["update", *["down"] * 3]
    assert all(is_within(inner, outer) for outer, inner in pairwise(found))
    assert {event["tid"] for event in found} == {threading.get_native_id()}


def test_spans_of_each_thread_have_their_own_line(tmp_path: Path) -> None:
    def work() -> None:
        with remuda.span("elsewhere"):
            pass

    with remuda.trace(tmp_path / "run.json") as trace, remuda.span("here"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    here, elsewhere = slices(trace.path, "span")
    assert (here["name"], elsewhere["name"]) == ("here", "elsewhere")
    assert here["tid"] != elsewhere["tid"]
    assert {"spans of thread " + str(tid) for tid in (here["tid"], elsewhere["tid"])} <= set(lines(trace.path).values())


def test_a_span_has_any_text_as_its_name_and_the_exception_that_ended_it(tmp_path: Path) -> None:
    with (
        remuda.trace(tmp_path / "run.json") as trace,
        pytest.raises(KeyError),
        remuda.span('a "quoted" läuft \\ back'),
    ):
        raise KeyError("there is none")
    (span,) = slices(trace.path, "span")
    assert (span["name"], span["args"]) == ('a "quoted" läuft \\ back', {"raised": "KeyError"})
    with pytest.raises(TypeError, match="expected the name of a span to be a str, got 3"):
        remuda.span(3)  # type: ignore[arg-type]


def test_a_span_that_is_only_partly_traced_is_omitted(tmp_path: Path) -> None:
    with remuda.span("too early"):
        trace = remuda.trace(tmp_path / "run.json")
    with remuda.span("too late"):
        trace.stop()
    assert slices(trace.path, "span") == []
