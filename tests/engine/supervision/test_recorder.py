"""Crash records: the contents and the place of the file that describes an env's fault."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import MODES, fault_in, rejoin
from pairs import each
from pool_envs import NestedEnv, TextEnv, counting, hooked
from replays import assert_reproduced, at_step, broken, drawing, fail, recording, replay

from remuda import (
    CrashDir,
    EnvError,
    Pool,
    load_record,
)

# -- contents --------------------------------------------------------------------------------------------


def test_an_exception_is_recorded_and_replayed(tmp_path: Path) -> None:
    with recording(hooked(3, step=at_step(4, broken)), tmp_path, num_workers=3) as pool:
        pool.reset(seed=[7, 8, 9], options={"level": 3})
        error = fail(pool)
        assert isinstance(error, EnvError)
        pid = pool.workers[1].pid
    assert error.record == tmp_path / "records/env-1-episode-0-step-4.remuda"
    assert error.failures[0].record == error.record
    assert f"remuda replay --trust {error.record}" in str(error)
    assert [path.name for path in (tmp_path / "records").iterdir()] == [error.record.name]

    record = load_record(error.record)
    assert (record.env_id, record.worker, record.pid, record.backend) == (1, 1, pid, "process")
    assert (record.episode, record.step, record.entries, record.calls) == (0, 4, 6, 0)
    assert (record.fault.kind, record.fault.operation) == ("exception", "step")
    assert (record.fault.type_name, record.fault.message) == ("ValueError", "broken")
    assert "in broken" in record.fault.traceback
    assert record.start is not None
    assert (record.start.seed, record.start.options) == (8, {"level": 3})
    assert record.kinds.tolist() == [0, 2, 4, 4, 4, 4]
    assert record.actions[0][2:].tolist() == [0, 1, 2, 3]
    assert record.action_space == "Discrete(1000)"
    assert record.versions["numpy"] == np.__version__
    assert record.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    run = replay(record, "--trust")
    assert_reproduced(run, "the env raised ValueError: broken in step 4")
    assert run.stdout.count("in broken") == 2  # the traceback of the worker and that of the replay


@pytest.mark.parametrize("mode", MODES)
def test_with_restarts_the_fault_names_its_record(mode: Any, tmp_path: Path) -> None:
    with recording(hooked(2, step=at_step(2, broken)), tmp_path, autoreset=mode, faults="restart") as pool:
        pool.reset(seed=1)
        pool.step([5, 5])
        first = fault_in(pool.step([6, 6]), 1).record
        rejoin(pool, [8, 8])
        second = fault_in(pool.step([9, 9]), 1).record
    assert first is not None and first.name == "env-1-episode-0-step-2.remuda"
    assert load_record(first).actions[0][-2:].tolist() == [5, 6]
    assert second is not None and second.name == "env-1-episode-1-step-2.remuda"
    record = load_record(second)
    # the record begins with the reset of the rebuilt env, which has its own seed
    assert record.kinds.tolist() == [0, 2, 4, 4]
    assert record.actions[0][-2:].tolist() == [8, 9]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_record_of_a_late_episode_has_the_state_of_its_random_numbers(mode: Any, tmp_path: Path) -> None:
    """The log is so short that it contains only the last episode."""
    options: Any = {"autoreset": mode, "crash_dir": CrashDir(tmp_path, bytes_per_env=9 * 64)}
    with recording(hooked(1, [0], step=drawing(0.0003)), tmp_path, backend="serial", **options) as pool:
        pool.reset(seed=4)
        error = fail(pool, lambda i: i % 1000)
    record = load_record(error.record)
    assert (record.entries, record.episode) == (5198, 889)
    assert record.start is not None and record.start.random is not None
    assert record.seeded is None
    assert_reproduced(
        replay(record, "--trust"), f"the env raised ValueError: {record.fault.message} in step {record.step}"
    )


@pytest.mark.parametrize("generator", ["MT19937", "Philox"])
def test_records_have_random_states_of_every_generator(generator: str, tmp_path: Path) -> None:
    def use_generator(env: Any) -> None:
        env.np_random = np.random.Generator(getattr(np.random, generator)(5))

    with recording(hooked(1, [0], build=use_generator, step=drawing(0.02)), tmp_path, backend="serial") as pool:
        pool.reset()
        error = fail(pool)
    record = load_record(error.record)
    assert record.start is not None and record.start.random is not None
    assert record.start.random["bit_generator"] == generator
    assert_reproduced(replay(record, "--trust"), f"the env raised ValueError: {record.fault.message} in")


def test_only_the_env_at_fault_is_recorded(tmp_path: Path) -> None:
    die = at_step(2, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with recording(hooked(3, [1], step=die), tmp_path, num_workers=1, faults="restart") as pool:
        pool.reset()
        pool.step([1, 1, 1])
        # Env 0 may have finished its step before the worker died. It then reports the fault in the next step.
        faults = {i: info["fault"] for _ in range(2) for i, info in enumerate(pool.step([2, 2, 2]).infos) if info}
    (path,) = (tmp_path / "records").iterdir()
    assert path.name == "env-1-episode-0-step-2.remuda"
    assert {i: fault.record for i, fault in faults.items()} == dict.fromkeys(range(3), path)
    record = load_record(path)
    assert (record.env_ids, record.num_workers) == ((0, 1, 2), 1)


def test_records_never_overwrite_a_file(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with recording(hooked(1, [0], step=at_step(1, broken)), tmp_path, backend="serial") as pool:
            pool.reset()
            names.append(fail(pool).record.name)
    assert names == [f"env-0-episode-0-step-1{more}.remuda" for more in ("", "-2", "-3")]
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == sorted(names)


def test_a_pool_writes_at_most_max_files_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = CrashDir(tmp_path / "records", max_files=2)
    records = []
    with recording(hooked(1, [0], step=at_step(1, broken)), tmp_path, backend="serial", crash_dir=policy) as pool:
        for _ in range(4):
            pool.reset()
            records.append(fail(pool).record)
    assert [record is None for record in records] == [False, False, True, True]
    assert [r.getMessage() for r in caplog.records if "max_files=2" in r.getMessage()]


def test_a_record_that_cannot_be_written_breaks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with recording(hooked(1, [0], step=at_step(2, broken)), tmp_path, faults="restart") as pool:
        pool.reset()
        shutil.rmtree(tmp_path / "records")
        pool.step([1])
        fault = pool.step([1]).infos[0]["fault"]
        assert fault.record is None
        assert "remuda replay" not in str(fault)
        pool.step([1])
        assert pool.step([1]).obs.tolist() == [[0, 1, 1, 1]]
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the crash record of env 0 could not be written" in error.getMessage()


@pytest.mark.parametrize(
    ("record", "error", "text"),
    [
        (5, TypeError, "expected crash_dir to be a directory, a CrashDir, or None, got 5"),
        (["somewhere"], TypeError, "expected crash_dir to be a directory"),
        ("a file", FileExistsError, "expected crash_dir to be a directory .*, got 'a file' .File exists: "),
        ("a file/records", NotADirectoryError, "expected crash_dir to be a directory .*, got 'a file/records' .Not a"),
    ],
)
def test_wrong_places_of_records_are_refused(
    record: Any, error: type[Exception], text: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    with pytest.raises(error, match=text):
        Pool(counting(1), crash_dir=record)


@each(name=["bytes_per_env", "max_files"], value=[0, 1.5, True, None])
def test_wrong_limits_and_directories_of_recording_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"expected {name} to be an int from 1 up"):
        CrashDir("records", **{name: value})
    with pytest.raises(TypeError, match="expected directory of CrashDir to be a path, got 5"):
        CrashDir(5)  # type: ignore[arg-type]


# -- actions and options ---------------------------------------------------------------------------------


def test_reports_and_records_have_actions_of_several_arrays(tmp_path: Path) -> None:
    class Pressed(NestedEnv):
        def step(self, action: Any) -> Any:
            if action["keys"][0] == 3:
                raise ValueError(f"pressed after {action['push']}")
            return super().step(action)

    pushes = np.random.default_rng(0).random((12, 1, 2)).astype(np.float32)
    with recording([lambda: Pressed(length=1000)], tmp_path, autoreset="same_step") as pool:
        pool.reset(seed=5)
        with pytest.raises(EnvError) as raised:
            for i, push in enumerate(pushes):
                pool.step({"push": push, "keys": (np.array([3 if i == 11 else 1]), np.ones((1, 2), np.int8))})
    where = raised.value.failures[0].where
    assert where is not None
    np.testing.assert_array_equal(where.action["push"], pushes[-1, 0])
    assert (int(where.action["keys"][0]), where.action["keys"][1].tolist()) == (3, [1, 1])
    record = load_record(raised.value.record or "")
    assert [action.shape[1:] for action in record.actions] == [(2,), (), (2,)]
    np.testing.assert_array_equal(record.actions[0][-1], pushes[-1, 0])
    assert_reproduced(replay(record, "--trust"), f"the env raised ValueError: {record.fault.message}")


def verses() -> list[Any]:
    class Verse(TextEnv):
        """An env that raises at a certain word."""

        def step(self, action: Any) -> Any:
            if "mule" in action:
                raise ValueError(f"after {len(action)} letters")
            return super().step(action)

    return [Verse]


def test_actions_without_a_fixed_size_need_trust(tmp_path: Path) -> None:
    with recording(verses(), tmp_path) as pool:
        pool.reset(seed=5)
        pool.step(["a horse"])
        pool.step(["\N{HORSE} " * 1000])
        with pytest.raises(EnvError) as raised:
            pool.step(["no mule"])
    record = load_record(raised.value.record or "")
    assert record.actions == () and "actions" in record.pickles
    run = replay(record, "--factory", "pool_envs:TextEnv")
    assert (run.exit_code, "pickled code: replaying them needs --trust" in run.stderr) == (2, True)
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: after 7 letters in step 3")


def test_records_lack_actions_that_are_too_long(tmp_path: Path) -> None:
    """The worker receives such actions through its socket. The replay reports those that the log does not contain."""
    with recording(verses(), tmp_path, crash_dir=CrashDir(tmp_path / "records", bytes_per_env=4096)) as pool:
        pool.reset(seed=5)
        pool.step(["x" * 100_000])
        with pytest.raises(EnvError) as raised:
            pool.step(["mule"])
    run = replay(raised.value.record, "--trust")
    assert (run.exit_code, "lacks the action of its entry 2" in run.stderr) == (2, True)
    assert "CrashDir(bytes_per_env=...)" in run.stderr


def test_pickled_options_need_trust(tmp_path: Path) -> None:
    def reset(env: Any) -> None:
        if env.last_options is not None and env.last_options["level"].number == 3:
            raise ValueError("too hard")

    level = type("Level", (), {"number": 3})()
    with recording(hooked(1, [0], reset=reset), tmp_path) as pool, pytest.raises(EnvError) as raised:
        pool.reset(seed=1, options={"level": level})
    record = load_record(raised.value.record or "")
    assert record.start is not None
    assert record.start.options is None and record.start.pickled_options is not None
    run = replay(record, "--factory", "pool_envs:CountingEnv")
    assert (run.exit_code, "reset options that are pickled code" in run.stderr) == (2, True)
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: too hard in the reset")


def test_records_lack_options_that_are_too_long(tmp_path: Path) -> None:
    with recording(hooked(1, [0], step=at_step(1, broken)), tmp_path) as pool:
        pool.reset(seed=1, options={"map": "x" * 100_000})
        record = load_record(fail(pool).record)
    assert record.start is not None
    assert (record.start.options, record.start.options_lost) == (None, "they are too long")
    run = replay(record, "--trust")
    assert (run.exit_code, "the options of its reset are missing: they are too long" in run.stderr) == (2, True)
