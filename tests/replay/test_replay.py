"""What an env that failed had been given is written down, and makes it fail again."""

from __future__ import annotations

import ctypes
import io
import itertools
import json
import logging
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from command import Outcome, command
from failing import LIMIT
from gymnasium import spaces
from pool_envs import HookedEnv, NestedEnv, TextEnv, counting, hooked
from programs import kill

from remuda import (
    EnvError,
    EnvTimeoutError,
    Fault,
    FaultPolicy,
    Pool,
    Record,
    RecordError,
    Recording,
    WorkerDiedError,
    load_record,
)
from remuda._crash import file as record_file
from remuda.gymnasium import AsyncVectorEnv

BACKENDS = ["process", "thread", "serial"]
MODES = ["next_step", "same_step", "disabled"]


def recording(env_fns: Any, directory: Path, **options: Any) -> Pool:
    return Pool(env_fns, **{"record": directory / "records", "advise": False, **options})


def replay(record: Path | Record | None, *options: str) -> Outcome:
    path = record.path if isinstance(record, Record) else record
    return command("replay", str(path), *options)


def assert_reproduced(run: Outcome, what: str = "") -> None:
    assert run.exit_code == 0, run.output
    assert f"reproduced: {what}" in run.stdout and "not reproduced" not in run.stdout


def fail(pool: Pool, make_action: Callable[[int], Any] = lambda i: i) -> Any:
    """Steps until the pool raises, and returns what."""
    with pytest.raises((EnvError, WorkerDiedError)) as raised:
        for i in range(100_000):
            if pool.step([make_action(i)] * pool.num_envs).truncated.any() and pool.autoreset == "disabled":
                raise AssertionError("it ended before it failed")
    return raised.value


def drawing(limit: float) -> Callable[..., Any]:
    """A hook for steps: raises as soon as the env draws less than that, and ends the episode now and then."""

    def step(env: Any, _: Any) -> Any:
        drawn = float(env.np_random.random())
        if drawn < limit:
            raise ValueError(f"drew {drawn}")
        return (env.observe(), 0.0, drawn > 0.8, False, {}) if drawn > 0.8 else None

    return step


def at_step(number: int, act: Callable[[], Any]) -> Callable[..., Any]:
    return lambda env, action: act() if env.steps == number else None


def broken() -> Any:
    raise ValueError("broken")


# -- what is recorded ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")  # as which Gymnasium logs
def test_gymnasiums_face_records_too(tmp_path: Path) -> None:
    env_fns = hooked(2, step=at_step(2, broken))
    with closing(AsyncVectorEnv(env_fns, record=tmp_path / "records", advise=False)) as envs:
        envs.reset(seed=3)
        envs.step(np.array([1, 2]))
        with pytest.raises(ValueError, match="broken") as raised:
            envs.step(np.array([3, 4]))
    cause = raised.value.__cause__
    assert isinstance(cause, EnvError)
    assert_reproduced(replay(cause.record, "--trust"), "the env raised ValueError: broken in step 2")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_is_recorded_and_replayed(backend: Any, tmp_path: Path) -> None:
    with recording(hooked(3, step=at_step(4, broken)), tmp_path, backend=backend, num_workers=3) as pool:
        pool.reset(seed=[7, 8, 9], options={"level": 3})
        error = fail(pool)
        assert isinstance(error, EnvError)
        pid = pool.workers[1].pid
    assert error.record == tmp_path / "records/env-1-episode-0-step-4.remuda"
    assert error.failures[0].record == error.record
    assert f"remuda replay {error.record}" in str(error)
    assert [path.name for path in (tmp_path / "records").iterdir()] == [error.record.name]

    record = load_record(error.record)
    assert (record.env_id, record.worker, record.pid, record.backend) == (1, 1, pid, backend)
    assert (record.episode, record.step, record.entries, record.calls) == (0, 4, 6, 0)
    assert (record.fault.kind, record.fault.operation) == ("exception", "step")
    assert (record.fault.type_name, record.fault.message) == ("ValueError", "broken")
    assert "in broken" in record.fault.traceback
    assert record.beginning is not None
    assert (record.beginning.seed, record.beginning.options) == (8, {"level": 3})
    assert record.kinds.tolist() == [0, 2, 4, 4, 4, 4]
    assert record.actions[0][2:].tolist() == [0, 1, 2, 3]
    assert record.action_space == "Discrete(1000)"
    assert record.versions["numpy"] == np.__version__
    assert record.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    run = replay(record, "--trust")
    assert_reproduced(run, "the env raised ValueError: broken in step 4")
    assert run.stdout.count("in broken") == 2  # the worker's traceback, and the replay's


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_with_restarts_the_fault_names_its_record(backend: Any, mode: Any, tmp_path: Path) -> None:
    faults = FaultPolicy("restart")
    env_fns = hooked(2, step=at_step(2, broken))
    with recording(env_fns, tmp_path, backend=backend, autoreset=mode, faults=faults) as pool:
        pool.reset(seed=1)
        pool.step([5, 5])
        batch = pool.step([6, 6])
        info = batch.infos[1]["final_info"] if mode == "same_step" else batch.infos[1]
        fault = info["fault"]
        assert isinstance(fault, Fault) and fault.record is not None
        if mode == "disabled":
            pool.reset(env_ids=[1])
        elif mode == "next_step":
            pool.step([7, 7])
        pool.step([8, 8])
        again = pool.step([9, 9])
        info = again.infos[1]["final_info"] if mode == "same_step" else again.infos[1]
        second = info["fault"].record
    assert fault.record.name == "env-1-episode-0-step-2.remuda"
    assert load_record(fault.record).actions[0][-2:].tolist() == [5, 6]
    assert second.name == "env-1-episode-1-step-2.remuda"
    record = load_record(second)
    assert record.kinds.tolist() == [0, 2, 4, 4]  # of the env that took the place, with a seed of its own
    assert record.actions[0][-2:].tolist() == [8, 9]
    assert_reproduced(replay(second, "--trust"))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_last_of_many_episodes_begins_with_the_random_numbers_of_then(
    backend: Any, mode: Any, tmp_path: Path
) -> None:
    """Nothing else is left of what was before: the log is short."""
    policy = Recording(tmp_path, bytes_per_env=9 * 64)
    with recording(
        hooked(1, [0], step=drawing(0.0003)), tmp_path, backend=backend, autoreset=mode, record=policy
    ) as pool:
        pool.reset(seed=4)
        error = fail(pool, lambda i: i % 1000)
    record = load_record(error.record)
    assert (record.entries, record.episode) == (5198, 889)
    assert record.beginning is not None and record.beginning.random is not None
    assert record.seeded is None
    assert_reproduced(
        replay(record, "--trust"), f"the env raised ValueError: {record.fault.message} in step {record.step}"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_episode_with_a_seed_of_its_own_and_remembered_options(backend: Any, tmp_path: Path) -> None:
    env_fns = hooked(2, step=drawing(0.003))
    with recording(env_fns, tmp_path, backend=backend, seeding="per_episode") as pool:
        pool.set_reset_options({"level": 3})
        pool.reset(seed=4)
        error = fail(pool, lambda i: i % 1000)
    record = load_record(error.record)
    assert record.episode is not None and record.episode > 0
    state = np.random.SeedSequence(4, spawn_key=(1, record.episode)).generate_state(1)[0]
    assert record.beginning is not None
    assert (record.beginning.seed, record.beginning.options) == (int(state) % 2**31, {"level": 3})
    assert_reproduced(replay(record, "--trust"), f"the env raised ValueError: {record.fault.message} in step")


@pytest.mark.parametrize("generator", ["PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_random_states_of_every_kind(generator: str, tmp_path: Path) -> None:
    def use_it(env: Any) -> None:
        env.np_random = np.random.Generator(getattr(np.random, generator)(5))

    with recording(hooked(1, [0], build=use_it, step=drawing(0.02)), tmp_path, backend="serial") as pool:
        pool.reset()
        error = fail(pool)
    record = load_record(error.record)
    assert record.beginning is not None and record.beginning.random is not None
    assert record.beginning.random["bit_generator"] == generator
    assert_reproduced(replay(record, "--trust"), f"the env raised ValueError: {record.fault.message} in")


def test_a_fault_in_a_reset(tmp_path: Path) -> None:
    def reset(env: Any) -> None:
        drawn = float(env.np_random.random())
        if drawn < 0.1:
            raise ValueError(f"drew {drawn}")

    with recording(hooked(1, [0], length=1, reset=reset, autoreset=reset), tmp_path) as pool:
        pool.reset(seed=1)
        error = fail(pool)
    record = load_record(error.record)
    assert (record.fault.operation, record.step) == ("reset", 0)
    assert_reproduced(replay(record, "--trust"), f"the env raised ValueError: {record.fault.message} in the reset")


def test_only_the_env_at_fault_is_recorded(tmp_path: Path) -> None:
    die = at_step(2, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with recording(hooked(3, [1], step=die), tmp_path, num_workers=1, faults="restart") as pool:
        pool.reset()
        pool.step([1, 1, 1])
        # Env 0 may have told of its step before the worker died: then it tells of its end with the next.
        faults = {i: info["fault"] for _ in range(2) for i, info in enumerate(pool.step([2, 2, 2]).infos) if info}
    (path,) = (tmp_path / "records").iterdir()
    assert path.name == "env-1-episode-0-step-2.remuda"
    assert {i: fault.record for i, fault in faults.items()} == dict.fromkeys(range(3), path)
    record = load_record(path)
    assert (record.env_ids, record.num_workers) == ((0, 1, 2), 1)


def test_nothing_is_recorded_without_a_fault(tmp_path: Path) -> None:
    with recording(counting(2, length=3), tmp_path) as pool:
        pool.reset()
        for i in range(9):
            pool.step([i, i])
    assert list((tmp_path / "records").iterdir()) == []


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with recording(hooked(1, [0], step=at_step(1, broken)), tmp_path, backend="serial") as pool:
            pool.reset()
            names.append(fail(pool).record.name)
    assert names == [f"env-0-episode-0-step-1{more}.remuda" for more in ("", "-2", "-3")]
    assert sorted(path.name for path in (tmp_path / "records").iterdir()) == sorted(names)


def test_a_pool_writes_so_many_files_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = Recording(tmp_path / "records", max_files=2)
    records = []
    with recording(hooked(1, [0], step=at_step(1, broken)), tmp_path, backend="serial", record=policy) as pool:
        for _ in range(4):
            pool.reset()
            records.append(fail(pool).record)
    assert [record is None for record in records] == [False, False, True, True]
    assert len(list((tmp_path / "records").iterdir())) == 2
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
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the crash record of env 0 could not be written" in told.getMessage()


@pytest.mark.parametrize(
    ("record", "error"),
    [(5, TypeError), (["somewhere"], TypeError), ("a file/records", NotADirectoryError)],
)
def test_a_place_that_cannot_be(record: Any, error: type[Exception], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    with pytest.raises(error):
        Pool(counting(1), record=record)


@pytest.mark.parametrize("name", ["bytes_per_env", "max_files"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_numbers_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"expected {name} to be an int from 1 up"):
        Recording("records", **{name: value})


# -- deaths, and what else happens to workers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("die", "told"),
    [
        (lambda: ctypes.string_at(0), "killed by SIGSEGV"),
        (os.abort, "killed by SIGABRT"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
        (lambda: os._exit(7), "it exited with code 7"),
        (lambda: os._exit(0), "it exited with code 0"),
    ],
)
def test_a_death_is_died_again_in_a_process_of_its_own(die: Any, told: str, tmp_path: Path) -> None:
    with recording(hooked(2, step=at_step(3, die)), tmp_path) as pool:
        pool.reset(seed=5)
        error = fail(pool)
        assert isinstance(error, WorkerDiedError)
    assert f"`remuda replay {error.record}`" in str(error)
    record = load_record(error.record)
    assert (record.fault.kind, record.fault.exitcode, record.step) == ("death", error.exitcode, 3)
    run = replay(record, "--trust")
    assert_reproduced(run, f"the process died ({told}")
    assert run.stdout.rstrip().endswith("in step 3")


def test_a_worker_that_was_killed_from_outside(tmp_path: Path) -> None:
    with recording(counting(2), tmp_path, faults="restart") as pool:
        pool.reset(seed=5)
        pool.step([1, 2])
        kill(pool, 1)
        record = pool.step([3, 4]).infos[1]["fault"].record
    assert load_record(record).actions[0][-1] == 2  # the last that it was given
    run = replay(record, "--trust")
    assert run.exit_code == 3
    assert "not reproduced: nothing failed" in run.stdout
    assert "SIGKILL comes from outside" in run.stdout


def test_a_successor_that_dies_before_its_first_reset_has_no_episode(tmp_path: Path) -> None:
    with recording(hooked(1, [0], step=at_step(2, os.abort)), tmp_path, faults="restart") as pool:
        pool.reset(seed=5)
        pool.step([1])
        pool.step([1])
        assert pool.apply(lambda env: env.episodes) == [0]  # the successor is there
        kill(pool, 0)
        pool.step([1])
        paths = sorted((tmp_path / "records").iterdir(), key=os.path.getmtime)
    first, second = map(load_record, paths)
    assert first.kinds.tolist() == [0, 2, 4, 4]
    assert second.begins_at is None and second.kinds[-1] == 0
    assert_reproduced(replay(first, "--trust"))
    run = replay(second, "--trust")
    assert (run.exit_code, "the env failed before its first reset" in run.stderr) == (2, True)


def test_a_log_that_was_written_over_breaks_nothing(tmp_path: Path) -> None:
    """As native code might."""

    def write_over() -> None:
        (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:remuda" in line]
        end = int(line.split()[0].partition("-")[2], 16)
        size = (1 << 18) + 4 * (1 << 14)  # the log comes last
        ctypes.memset(end - size, 0xAA, size)
        os.abort()

    with recording(hooked(1, [0], step=at_step(3, write_over)), tmp_path) as pool:
        pool.reset(seed=5)
        error = fail(pool)
    assert isinstance(error, WorkerDiedError)
    record = load_record(error.record)
    assert len(record.kinds) == 0
    run = replay(record, "--trust")
    assert (run.exit_code, "cannot be replayed" in run.stderr) == (2, True)


def test_a_worker_that_talked_nonsense(tmp_path: Path) -> None:
    """What the env wrote over lies elsewhere in a replay: any end without an answer counts."""
    with recording(hooked(1, [0], step=at_step(3, os.abort)), tmp_path) as pool:
        pool.reset(seed=5)
        path = fail(pool).record
    with zipfile.ZipFile(path) as archive:
        contents = json.loads(archive.read("record.json"))
    contents["fault"] = {**contents["fault"], "kind": "corrupt", "exitcode": -signal.SIGKILL}
    rewrite(path, **{"record.json": json.dumps(contents).encode()})
    assert_reproduced(replay(path, "--trust"), "the process died (killed by SIGABRT")
    run = replay(path, "--trust", "--factory", "pool_envs:CountingEnv")
    assert run.exit_code == 3
    assert "what the env wrote over was memory of the pool" in run.stdout


def test_a_hang_is_a_hang_again(tmp_path: Path) -> None:
    hang = at_step(3, lambda: threading.Event().wait())
    with recording(hooked(1, [0], step=hang), tmp_path, faults=FaultPolicy(step_timeout=LIMIT)) as pool:
        pool.reset(seed=5)
        error = fail(pool)
        assert isinstance(error, EnvTimeoutError)
    record = load_record(error.record)
    assert (record.fault.kind, record.fault.deadline) == ("timeout", LIMIT)
    assert_reproduced(replay(record, "--trust"), "the env did not come back from step 3")


def test_what_an_env_returns_is_checked_again(tmp_path: Path) -> None:
    wrong = lambda env, action: ("text", 0.0, False, False, {}) if env.steps == 2 else None  # noqa: E731
    with recording(hooked(1, [0], step=wrong), tmp_path) as pool:
        pool.reset(seed=5)
        error = fail(pool)
    assert_reproduced(replay(error.record, "--trust"), "the env raised ValueError: expected an array of shape (4,)")


# -- actions and options -----------------------------------------------------------------------------------------


def test_actions_of_several_arrays(tmp_path: Path) -> None:
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
    record = load_record(raised.value.record or "")
    assert [action.shape[1:] for action in record.actions] == [(2,), (), (2,)]
    np.testing.assert_array_equal(record.actions[0][-1], pushes[-1, 0])
    assert_reproduced(replay(record, "--trust"), f"the env raised ValueError: {record.fault.message}")


def verses() -> list[Any]:
    class Verse(TextEnv):
        """Cannot stand a word."""

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
    other = replay(record, "--trust", "--factory", "pool_envs:TextEnv")
    assert (other.exit_code, "not reproduced: nothing failed" in other.stdout) == (3, True)


def test_actions_too_long_for_the_log(tmp_path: Path) -> None:
    """They go to the worker through its socket; what is lost of them is said."""
    with recording(verses(), tmp_path, record=Recording(tmp_path / "records", bytes_per_env=4096)) as pool:
        pool.reset(seed=5)
        pool.step(["x" * 100_000])
        with pytest.raises(EnvError) as raised:
            pool.step(["mule"])
    run = replay(raised.value.record, "--trust")
    assert (run.exit_code, "lacks the action of its entry 2" in run.stderr) == (2, True)
    assert "Recording(bytes_per_env=...)" in run.stderr


def test_options_that_are_no_plain_data_need_trust(tmp_path: Path) -> None:
    def reset(env: Any) -> None:
        if env.last_options is not None and env.last_options["level"].number == 3:
            raise ValueError("too hard")

    level = type("Level", (), {"number": 3})()
    with recording(hooked(1, [0], reset=reset), tmp_path) as pool, pytest.raises(EnvError) as raised:
        pool.reset(seed=1, options={"level": level})
    record = load_record(raised.value.record or "")
    assert record.beginning is not None
    assert record.beginning.options is None and record.beginning.pickled_options is not None
    run = replay(record, "--factory", "pool_envs:CountingEnv")
    assert (run.exit_code, "reset options that are pickled code" in run.stderr) == (2, True)
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: too hard in the reset")


def test_options_too_long_to_keep(tmp_path: Path) -> None:
    with recording(hooked(1, [0], step=at_step(1, broken)), tmp_path) as pool:
        pool.reset(seed=1, options={"map": "x" * 100_000})
        record = load_record(fail(pool).record)
    assert record.beginning is not None
    assert (record.beginning.options, record.beginning.options_lost) == (None, "they are too long")
    run = replay(record, "--trust")
    assert (run.exit_code, "the options of its reset are missing: they are too long" in run.stderr) == (2, True)


# -- replays that do not, or cannot -------------------------------------------------------------------------------


def test_an_env_that_does_not_fail_again(tmp_path: Path) -> None:
    marker = str(tmp_path / "failed")

    def once(env: Any, action: Any) -> None:
        if env.steps == 2 and not os.path.exists(marker):
            os.close(os.open(marker, os.O_CREAT))
            raise ValueError("once")

    with recording(hooked(1, [0], step=once), tmp_path) as pool:
        pool.reset(seed=1)
        record = fail(pool).record
    run = replay(record, "--trust")
    assert run.exit_code == 3
    assert "not reproduced: nothing failed: the env went on after step 2" in run.stdout
    assert "time, threads, devices" in run.stdout


@pytest.mark.parametrize(("error", "step"), [(KeyError, 2), (ValueError, 1)])
def test_an_env_that_fails_otherwise(error: type[Exception], step: int, tmp_path: Path) -> None:
    marker = str(tmp_path / "failed")

    def otherwise(env: Any, action: Any) -> None:
        if os.path.exists(marker) and env.steps == step:
            raise error("otherwise")
        if env.steps == 2:
            os.close(os.open(marker, os.O_CREAT))
            raise ValueError("at first")

    with recording(hooked(1, [0], step=otherwise), tmp_path) as pool:
        pool.reset(seed=1)
        record = fail(pool).record
    run = replay(record, "--trust")
    assert run.exit_code == 3
    assert f"not reproduced: the env raised {error.__name__}: " in run.stdout
    assert f"in step {step}\n" in run.stdout


def test_calls_are_not_recorded_and_that_is_said(tmp_path: Path) -> None:
    def fragile(env: Any, action: Any) -> None:
        if getattr(env, "is_fragile", False):
            raise ValueError("broken")

    with recording(hooked(1, [0], step=fragile), tmp_path) as pool:
        pool.reset(seed=1)
        pool.step([1])
        pool.set_attr("is_fragile", True)
        record = fail(pool).record
    assert load_record(record).calls == 1
    run = replay(record, "--trust")
    assert run.exit_code == 3
    assert "the program had called the env 1 times" in run.stdout


def test_what_an_env_keeps_beside_its_random_numbers_takes_all_since_the_seed(tmp_path: Path) -> None:
    wears_out = lambda env, action: broken() if env.total_steps == 9 else None  # noqa: E731
    with recording(hooked(1, [0], length=2, step=wears_out), tmp_path) as pool:
        pool.reset(seed=1)
        record = load_record(fail(pool).record)
    assert (record.episode, record.step) == (4, 1)
    run = replay(record, "--trust")
    assert_reproduced(run, "the env raised ValueError: broken in step 1")
    assert "replaying episode 4" in run.stdout  # which alone was not enough
    assert "replaying all since the last reset with a seed" in run.stdout
    assert_reproduced(replay(record, "--trust", "--since-seed"))


def test_an_env_that_had_been_reset_before_is_reset_before(tmp_path: Path) -> None:
    later = lambda env, action: broken() if env.episodes > 1 and env.steps == 2 else None  # noqa: E731
    with recording(hooked(1, [0], length=3, step=later), tmp_path) as pool:
        pool.reset()
        record = load_record(fail(pool).record)
    assert (record.episode, record.seeded_at) == (1, None)
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: broken in step 2")


def test_an_env_whose_random_state_is_unknown_is_replayed_from_its_seed(tmp_path: Path) -> None:
    class Own(gymnasium.Env[Any, Any]):
        """Has random numbers of its own."""

        observation_space = spaces.Discrete(2)
        action_space = spaces.Discrete(1000)
        np_random = None  # type: ignore[assignment]

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if seed is not None:
                self.own = np.random.default_rng(seed)
            return 0, {}

        def step(self, action: Any) -> Any:
            drawn = self.own.random()
            if drawn < 0.02:
                raise ValueError(f"drew {drawn}")
            return 0, 0.0, bool(drawn > 0.8), False, {}

    with recording([Own], tmp_path) as pool:
        pool.reset(seed=3)
        record = load_record(fail(pool).record)
    assert record.episode is not None and record.episode > 0
    assert record.beginning is not None
    assert record.beginning.random_unknown == "its np_random is no Generator, but NoneType"
    run = replay(record, "--trust")
    assert_reproduced(run, f"the env raised ValueError: {record.fault.message}")
    assert "random state unknown: its np_random is no Generator" in run.stdout

    with recording([Own], tmp_path, record=Recording(tmp_path, bytes_per_env=200)) as pool:
        pool.reset(seed=3)
        record = load_record(fail(pool).record)
    run = replay(record, "--trust")
    assert (run.exit_code, "its random state is unknown" in run.stderr) == (2, True)


def test_an_episode_longer_than_the_log_is_not_replayed(tmp_path: Path) -> None:
    policy = Recording(tmp_path / "records", bytes_per_env=9 * 32)
    with recording(hooked(1, [0], step=at_step(32, broken)), tmp_path, backend="serial", record=policy) as pool:
        pool.reset(seed=1)
        record = load_record(fail(pool, lambda i: i).record)
    assert record.begins_at is None and not record.is_whole
    assert record.actions[0].tolist() == list(range(32))  # the latest ones, all the same
    run = replay(record, "--trust")
    assert (run.exit_code, "its 32 latest actions are there" in run.stderr) == (2, True)
    assert "Recording(bytes_per_env=...)" in run.stderr

    with recording(hooked(1, [0], step=at_step(31, broken)), tmp_path, backend="serial", record=policy) as pool:
        pool.reset(seed=1)
        record = load_record(fail(pool).record)
    assert record.is_whole
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: broken in step 31")


def test_a_factory_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()

    def build() -> Any:
        with lock:
            return hooked(1, [0], step=at_step(2, broken))[0]()

    with recording([build], tmp_path, backend="thread") as pool:
        pool.reset(seed=1)
        record = load_record(fail(pool).record)
    assert "which cannot be pickled" in record.factory
    run = replay(record, "--trust")
    assert (run.exit_code, "name one with --factory module:function" in run.stderr) == (2, True)
    (tmp_path / "my_factory.py").write_text(
        "from pool_envs import *\ndef make(): return HookedEnv(step=raising(lambda: ValueError('here too')))\n"
        "def nested(): return NestedEnv()\ndef none(): return None\ntext = 'text'\n"
    )
    os.chdir(tmp_path)  # back in the fixture
    run = replay(record, "--factory", "my_factory:make")
    assert run.exit_code == 3
    assert "the env raised ValueError: here too in step 1" in run.stdout
    for name, told in {
        "my_factory:nested": "expected an env with the action space Discrete(1000)",
        "my_factory:missing": "has no attribute 'missing'",
        "my_factory:text": "expected a function that builds an env, got 'text'",
        "no_such_module:make": "No module named 'no_such_module'",
        "my_factory": "expected module:function",
    }.items():
        run = replay(record, "--factory", name)
        assert (run.exit_code, told in run.stderr) == (2, True), run.stderr
    run = replay(record, "--factory", "my_factory:none")
    assert (run.exit_code, "the env raised remuda.errors.InvalidEnvError" in run.stdout) == (3, True)
    assert "the making of the env" in run.stdout


@pytest.fixture(autouse=True)
def back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a test goes."""
    monkeypatch.chdir(os.getcwd())


# -- trust ----------------------------------------------------------------------------------------------------------


class Malice:
    """Unpickling it touches a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def some_record(directory: Path, **hooks: Any) -> Path:
    with recording(hooked(1, [0], step=at_step(2, broken), **hooks), directory, backend="serial") as pool:
        pool.reset(seed=1)
        path = fail(pool).record
    assert isinstance(path, Path)
    return path


def rewrite(path: Path, **members: bytes) -> None:
    """Replaces members of a record."""
    with zipfile.ZipFile(path) as archive:
        all_members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**all_members, **members}.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("name", ["pickles/factory", "pickles/observation_space", "pickles/actions", "actions.npz"])
def test_nothing_in_a_file_runs_without_leave(name: str, tmp_path: Path) -> None:
    path, marker = some_record(tmp_path), tmp_path / "marker"
    malice: Any = pickle.dumps(Malice(str(marker)))
    if name == "actions.npz":
        np.savez(tmp_path / "malice.npz", kinds=np.array([Malice(str(marker))], object))
        malice = (tmp_path / "malice.npz").read_bytes()
        marker.rmdir() if marker.exists() else None
    rewrite(path, **{name: malice})
    run = replay(path)
    assert run.exit_code == 2
    if name == "actions.npz":
        assert "expected a crash record" in run.stderr
    else:
        assert "Nothing was run" in run.stdout and "--trust" in run.stdout
    assert replay(path, "--factory", "pool_envs:CountingEnv").exit_code in (2, 3)
    assert not marker.exists()
    replay(path, "--trust")
    assert marker.exists() is (name != "actions.npz")


def test_a_record_is_shown_without_leave(tmp_path: Path) -> None:
    run = replay(some_record(tmp_path))
    assert run.exit_code == 2
    for told in ("exception in step, episode 0, step 2", "seed 1", "Discrete(1000)", "in broken", "Nothing was run"):
        assert told in run.stdout


ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202eevil[red]"


def test_a_file_says_nothing_to_the_terminal(tmp_path: Path) -> None:
    """Whatever of it is shown, and also where it is refused."""
    path = some_record(tmp_path)
    with zipfile.ZipFile(path) as archive:
        contents = json.loads(archive.read("record.json"))
    texts = {name: ESCAPES for name, value in contents.items() if isinstance(value, str) and name not in OF_THE_FILE}
    fault = {name: ESCAPES if isinstance(value, str) else value for name, value in contents["fault"].items()}
    versions = dict.fromkeys(contents["versions"], ESCAPES)
    beginning = {**contents["beginning"], "seed": None, "random": None, "random_unknown": ESCAPES}
    shown = {**contents, **texts, "fault": fault, "versions": versions, "beginning": beginning}
    rewrite(path, **{"record.json": json.dumps(shown).encode(), f"pickles/{ESCAPES}": b""})
    assert load_record(path).factory == ESCAPES
    runs = [replay(path), replay(path, "--factory", "pool_envs:CountingEnv"), replay(path, "--factory", ESCAPES)]
    rewrite(path, **{"record.json": json.dumps({**shown, "sys_path": [{ESCAPES: 1}]}).encode()})
    runs.append(replay(path))
    with pytest.raises(RecordError) as raised:
        load_record(path)
    rewrite(path, **{"record.json": json.dumps({**shown, "version": ESCAPES}).encode()})
    runs.append(replay(path))
    for told in (str(raised.value), *(run.stdout + run.stderr for run in runs)):
        assert [c for c in told if not c.isprintable() and c not in "\n\t"] == []
        assert told.isspace() is False
    assert "\\x1b[2J" in runs[0].stdout and "evil[red]" in runs[0].stdout


OF_THE_FILE = ("format", "when")


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = some_record(tmp_path)
    data = path.read_bytes()
    for size in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(RecordError, match="expected a crash record, got"):
            load_record(path)


def test_a_file_with_a_bit_flipped_is_refused_or_read_as_it_was(tmp_path: Path) -> None:
    path = some_record(tmp_path)
    data = path.read_bytes()
    refused = 0
    for at, bit in itertools.product(range(len(data)), (0x01, 0x10, 0x80)):
        path.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        try:
            load_record(path)
        except RecordError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x03\x04", os.urandom(0) + bytes(range(256)) * 8])
def test_what_is_no_record(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(RecordError, match="expected a crash record, got"):
        load_record(tmp_path / "file")
    run = replay(tmp_path / "file")
    assert (run.exit_code, run.stderr.startswith("error: expected a crash record")) == (2, True)


def packed(sizes: dict[str, int], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, size in sizes.items():
            with archive.open(name, "w") as part:
                for _ in range(0, size, 1 << 20):
                    part.write(bytes(min(size, 1 << 20)))
    return file.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    "one part": lambda: packed({"record.json": 10, "pickles/factory": 1 << 21}),
    "many parts": lambda: packed({f"pickles/{i}": 1 << 19 for i in range(3)}),
    "text": lambda: packed({"record.json": (1 << 16) + 1}),
    "too many parts": lambda: packed(dict.fromkeys(map(str, range(2000)), 1)),
    "another compression": lambda: packed({"record.json": 10}, zipfile.ZIP_LZMA),
}


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are too large take long to make."""
    monkeypatch.setattr(record_file, "_LARGEST", 1 << 20)
    monkeypatch.setattr(record_file, "_LARGEST_TEXT", 1 << 16)
    monkeypatch.setattr(record_file, "_LONGEST", 1 << 12)


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_is_not_unpacked_to_a_large_one(bomb: str, tmp_path: Path, monkeypatch: Any) -> None:
    """It is refused before anything is unpacked."""
    (tmp_path / "file").write_bytes(BOMBS[bomb]())
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(RecordError, match="expected a crash record, got"):
        load_record(tmp_path / "file")


@pytest.mark.usefixtures("low_limits")
def test_arrays_are_not_unpacked_to_large_ones(tmp_path: Path) -> None:
    path = some_record(tmp_path)
    rewrite(path, **{"actions.npz": packed({"kinds.npy": 1 << 20})})
    with pytest.raises(RecordError, match="unpacks to at most"):
        load_record(path)


def test_only_its_owner_reads_a_record(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = some_record(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.usefixtures("low_limits")
def test_a_text_without_end_is_cut(tmp_path: Path) -> None:
    def speak() -> Any:
        raise ValueError("x" * (1 << 17) + " the end")

    with recording(hooked(1, (0,), step=at_step(1, speak)), tmp_path) as pool:
        pool.reset(seed=1)
        error = fail(pool)
    record = load_record(error.record)
    for text in (record.fault.message, record.fault.traceback):
        assert text.startswith("[cut] ...xx") and text.rstrip().endswith("xx the end")


@pytest.mark.usefixtures("low_limits")
def test_a_record_too_large_to_be_loaded_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ballast = bytes(1 << 20)
    with recording([lambda: (ballast, HookedEnv(step=at_step(1, broken)))[1]], tmp_path, start_method="fork") as pool:
        pool.reset()
        error = fail(pool)
    assert error.record is None
    assert "the crash record of env 0 could not be written: expected a file that unpacks to at most" in caplog.text
    assert list((tmp_path / "records").iterdir()) == []


def test_what_a_file_says_does_not_steer_the_terminal(tmp_path: Path) -> None:
    def colour() -> None:
        raise ValueError("\x1b[31mred\x07\rover")

    with recording(hooked(1, [0], step=at_step(1, colour)), tmp_path, backend="serial") as pool:
        pool.reset()
        record = fail(pool).record
    run = replay(record)
    assert "\\x1b[31mred\\x07\\rover" in run.stdout
    assert all(c.isprintable() or c in "\n\t" for c in run.output)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_record(tmp_path / "file")
    assert replay(tmp_path / "file").exit_code == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "it is of version 2, and this remuda knows version 1"),
        ({"format": "cake"}, "says nothing of a remuda crash record"),
        ({"env_id": "one"}, "expected int, got 'one' at env_id"),
        ({"env_id": True}, "expected int, got True at env_id"),
        ({"fault": None}, "expected dict, got None at fault"),
        ({"fault": {}}, "expected str, got None at fault.kind"),
        ({"env_ids": ["a"]}, "expected int, got 'a' at env_ids"),
        ({"beginning": {"seed": "x"}}, "expected int or null, got 'x' at beginning.seed"),
        ({"beginning": {"pickled_options": "%"}}, "expected a crash record"),
        ({"sys_path": 3}, "expected list, got 3 at sys_path"),
    ],
)
def test_contents_that_cannot_be(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = some_record(tmp_path)
    with zipfile.ZipFile(path) as archive:
        contents = json.loads(archive.read("record.json"))
    rewrite(path, **{"record.json": json.dumps({**contents, **change}).encode()})
    with pytest.raises(RecordError, match="expected") as raised:
        load_record(path)
    assert told in str(raised.value)


def test_pickles_of_another_python_are_not_loaded(tmp_path: Path) -> None:
    path = some_record(tmp_path)
    with zipfile.ZipFile(path) as archive:
        contents = json.loads(archive.read("record.json"))
    contents["versions"]["python"] = "3.9.1"
    rewrite(path, **{"record.json": json.dumps(contents).encode()})
    run = replay(path, "--trust")
    assert (run.exit_code, "was written by Python 3.9.1" in run.stderr) == (2, True)


@pytest.mark.parametrize("state", [{}, {"bit_generator": "os.system"}, {"bit_generator": "PCG64", "state": "x"}])
def test_random_states_that_make_no_sense(state: Any, tmp_path: Path) -> None:
    path = some_record(tmp_path)
    with zipfile.ZipFile(path) as archive:
        contents = json.loads(archive.read("record.json"))
    contents["beginning"]["random"] = state
    rewrite(path, **{"record.json": json.dumps(contents).encode()})
    run = replay(path, "--trust")
    assert (run.exit_code, "expected" in run.stderr) == (2, True), run.output


# -- stops on the way ------------------------------------------------------------------------------------------------


def test_a_replay_stops_where_it_is_told_to(tmp_path: Path) -> None:
    run = replay(some_record(tmp_path), "--trust", "--until-step", "2")
    assert run.exit_code == 0
    assert "stopped before step 2: nothing had failed" in run.stdout
    assert_reproduced(replay(some_record(tmp_path), "--trust", "--until-step", "3"))  # there are only two


def under_pdb(record: Path | None, commands: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the debugger reads from its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "remuda", "replay", str(record), "--trust", "--pdb", *options],
        input=commands,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_the_debugger_looks_at_the_exception(tmp_path: Path) -> None:
    run = under_pdb(some_record(tmp_path), "up\np 'steps', env.steps\nq\n")
    assert run.returncode == 0, run.stderr
    assert "('steps', 2)" in run.stdout
    assert "reproduced: the env raised ValueError: broken in step 2" in run.stdout


def test_the_debugger_stops_before_the_fatal_step(tmp_path: Path) -> None:
    with recording(hooked(1, [0], step=at_step(3, os.abort)), tmp_path) as pool:
        pool.reset(seed=5)
        record = fail(pool, lambda i: i + 10).record
    run = under_pdb(record, "p 'here', env.steps, action\nq\n")
    assert run.returncode == 0, run.stderr
    assert "('here', 2, 12)" in run.stdout.replace("np.int64(12)", "12")
    run = under_pdb(record, "p 'here', env.steps, action\nq\n", "--until-step", "2")
    assert "('here', 1, 11)" in run.stdout.replace("np.int64(11)", "11")
    died = under_pdb(record, "c\n")
    assert died.returncode == -signal.SIGABRT
