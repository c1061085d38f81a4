"""`remuda replay` repeats the episode of a crash record, reports what happens, and can stop on the way."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from command import command_apart
from failing import LIMIT
from gymnasium import spaces
from pool_envs import counting, hooked
from programs import kill
from replays import assert_reproduced, at_step, broken, fail, make_record, recorded, recording, replay, restate

from remuda import CrashDir, FaultPolicy, load_record

# -- deaths and other faults of workers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "kind", "outcome"),
    [
        (lambda: ctypes.string_at(0), "death", "the process died (killed by SIGSEGV"),
        (lambda: os._exit(0), "death", "the process died (it exited with code 0"),
        (lambda: threading.Event().wait(), "timeout", "the env did not come back from step 3"),
    ],
)
def test_a_fault_is_reproduced_in_another_process(act: Any, kind: str, outcome: str, tmp_path: Path) -> None:
    limit = LIMIT if kind == "timeout" else None
    with recording(hooked(2, step=at_step(3, act)), tmp_path, faults=FaultPolicy(step_timeout=limit)) as pool:
        pool.reset(seed=5)
        error = fail(pool)
    assert f"`remuda replay --trust {error.record}`" in str(error)
    record = load_record(error.record)
    assert (record.fault.kind, record.fault.deadline, record.step) == (kind, limit, 3)
    assert kind == "timeout" or record.fault.exitcode == error.exitcode
    run = replay(record, "--trust")
    assert_reproduced(run, outcome)
    assert run.stdout.rstrip().endswith("step 3")


def test_a_kill_from_outside_is_not_reproduced(tmp_path: Path) -> None:
    with recording(counting(2), tmp_path, faults="restart") as pool:
        pool.reset(seed=5)
        pool.step([1, 2])
        kill(pool, 1)
        record = pool.step([3, 4]).infos[1]["fault"].record
    assert load_record(record).actions[0][-1] == 2  # the last action that the env received
    run = replay(record, "--trust")
    assert run.exit_code == 3
    assert "not reproduced: nothing failed" in run.stdout
    assert "SIGKILL comes from outside" in run.stdout


def test_a_successor_that_dies_before_its_first_reset_has_no_episode(tmp_path: Path) -> None:
    with recording(hooked(1, [0], step=at_step(2, os.abort)), tmp_path, faults="restart") as pool:
        pool.reset(seed=5)
        pool.step([1])
        pool.step([1])
        assert pool.apply(lambda env: env.episodes) == [0]  # the successor has answered
        kill(pool, 0)
        pool.step([1])
        paths = sorted((tmp_path / "records").iterdir(), key=os.path.getmtime)
    first, second = map(load_record, paths)
    assert first.kinds.tolist() == [0, 2, 4, 4]
    assert second.begins_at is None and second.kinds[-1] == 0
    assert_reproduced(replay(first, "--trust"))
    assert_refused(second, "the env failed before its first reset")


def test_an_overwritten_log_is_not_replayed(tmp_path: Path) -> None:
    """Native code in an env may overwrite the log."""

    def write_over() -> None:
        (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:remuda" in line]
        end = int(line.split()[0].partition("-")[2], 16)
        size = (1 << 18) + 4 * (1 << 14)  # the log is the last part of the arena
        ctypes.memset(end - size, 0xAA, size)
        os.abort()

    record = recorded(hooked(1, [0], step=at_step(3, write_over)), tmp_path)
    assert (record.fault.kind, len(record.kinds)) == ("death", 0)
    assert_refused(record, "cannot be replayed")


def test_a_record_of_invalid_data_is_reproduced_by_any_death(tmp_path: Path) -> None:
    """In a replay the env overwrites other memory, so any death counts as the same failure."""
    path = recorded(hooked(1, [0], step=at_step(3, os.abort)), tmp_path).path
    restate(path, lambda stated: {"fault": {**stated["fault"], "kind": "corrupt", "exitcode": -signal.SIGKILL}})
    assert_reproduced(replay(path, "--trust"), "the process died (killed by SIGABRT")
    run = replay(path, "--trust", "--factory", "pool_envs:CountingEnv")
    assert run.exit_code == 3
    assert "the env wrote to memory of the pool" in run.stdout


# -- replays without the failure, and refused replays ---------------------------------------------------


def assert_refused(record: Any, reason: str, *options: str) -> None:
    run = replay(record, *(options or ("--trust",)))
    assert (run.exit_code, reason in run.stderr) == (2, True), run.output


def test_a_replay_without_the_same_failure_is_reported(tmp_path: Path) -> None:
    path = make_record(tmp_path)
    run = replay(path, "--factory", "pool_envs:CountingEnv")
    assert run.exit_code == 3
    assert "not reproduced: nothing failed: the env went on after step 2" in run.stdout
    assert "time, threads, devices" in run.stdout
    restate(path, lambda stated: {"fault": {**stated["fault"], "type_name": "KeyError"}})
    run = replay(path, "--trust")
    assert (run.exit_code, "not reproduced: the env raised ValueError: broken in step 2\n" in run.stdout) == (3, True)


def test_a_replay_reports_that_calls_were_not_recorded(tmp_path: Path) -> None:
    def fragile(env: Any, action: Any) -> None:
        if getattr(env, "is_fragile", False):
            broken()

    with recording(hooked(1, [0], step=fragile), tmp_path) as pool:
        pool.reset(seed=1)
        pool.step([1])
        pool.set_attr("is_fragile", True)
        record = fail(pool).record
    assert load_record(record).calls == 1
    run = replay(record, "--trust")
    assert run.exit_code == 3
    assert "the program had called the env 1 times" in run.stdout


def test_a_failure_that_depends_on_earlier_episodes_is_replayed_since_the_seed(tmp_path: Path) -> None:
    wears_out = lambda env, action: broken() if env.total_steps == 9 else None  # noqa: E731
    record = recorded(hooked(1, [0], length=2, step=wears_out), tmp_path)
    assert (record.episode, record.step) == (4, 1)
    run = replay(record, "--trust")
    assert_reproduced(run, "the env raised ValueError: broken in step 1")
    # the reset before the last episode, the episode alone, and then all since the last reset with a seed
    assert re.findall(r"replaying (\d+) calls", run.stdout) == ["3", "14"]
    assert_reproduced(replay(record, "--trust", "--since-seed"))


def test_an_env_that_was_reset_before_is_reset_before_the_replay(tmp_path: Path) -> None:
    later = lambda env, action: broken() if env.episodes > 1 and env.steps == 2 else None  # noqa: E731
    record = recorded(hooked(1, [0], length=3, step=later), tmp_path, seed=None)
    assert (record.episode, record.seeded_at) == (1, None)
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: broken in step 2")


def test_an_env_whose_random_state_is_unknown_is_replayed_from_its_seed(tmp_path: Path) -> None:
    class Own(gymnasium.Env[Any, Any]):
        """Draws from its own generator."""

        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(1000)
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

    record = recorded([Own], tmp_path, seed=3)
    assert record.episode is not None and record.episode > 0
    assert record.start is not None
    assert record.start.random_unknown == "its np_random is no Generator, but NoneType"
    run = replay(record, "--trust")
    assert_reproduced(run, f"the env raised ValueError: {record.fault.message}")
    assert "random_unknown='its np_random is no Generator" in run.stdout
    without_seed = recorded([Own], tmp_path, seed=3, crash_dir=CrashDir(tmp_path, bytes_per_env=200))
    assert_refused(without_seed, "its random state is unknown")


def test_an_episode_longer_than_the_log_is_not_replayed(tmp_path: Path) -> None:
    options: Any = {"backend": "serial", "crash_dir": CrashDir(tmp_path / "records", bytes_per_env=9 * 32)}
    record = recorded(hooked(1, [0], step=at_step(32, broken)), tmp_path, **options)
    assert record.begins_at is None and not record.is_whole
    assert record.actions[0].tolist() == list(range(32))  # the latest actions are kept
    assert_refused(record, "its 32 latest actions are there")
    assert_refused(record, "CrashDir(bytes_per_env=...)")
    record = recorded(hooked(1, [0], step=at_step(31, broken)), tmp_path, **options)
    assert record.is_whole
    assert_reproduced(replay(record, "--trust"), "the env raised ValueError: broken in step 31")


def test_a_factory_that_cannot_be_pickled_can_be_replaced_by_name(tmp_path: Path) -> None:
    lock = threading.Lock()

    def build() -> Any:
        with lock:
            return hooked(1, [0], step=at_step(2, broken))[0]()

    record = recorded([build], tmp_path, backend="thread")
    assert "which cannot be pickled" in record.factory
    assert_refused(record, "name one with --factory module:function")
    wrong_space = "expected an env with the action space Discrete(1000)"
    assert_refused(record, wrong_space, "--factory", "pool_envs:NestedEnv")
    assert_refused(record, "has no attribute 'missing'", "--factory", "replays:missing")
    run = replay(record, "--factory", "replays:failing_in_step_1")
    assert run.exit_code == 3
    assert "not reproduced: the env raised ValueError: broken in step 1" in run.stdout  # the record has step 2
    run = replay(record, "--factory", "builtins:object")
    assert (run.exit_code, "the env raised AttributeError: 'object' object" in run.stdout) == (3, True)
    assert "the making of the env" in run.stdout


# -- stops and the debugger ------------------------------------------------------------------------------


def under_pdb(record: Path | None, commands: str, *options: str) -> Any:
    """Runs the command in a process, because the debugger reads from standard input."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return command_apart("replay", str(record), "--trust", "--pdb", *options, input=commands, env=environment)


def test_the_debugger_opens_at_the_exception(tmp_path: Path) -> None:
    run = under_pdb(make_record(tmp_path), "up\np 'steps', env.steps\nq\n")
    assert run.returncode == 0, run.stderr
    assert "('steps', 2)" in run.stdout


def test_the_debugger_stops_before_the_fatal_step(tmp_path: Path) -> None:
    record = recorded(hooked(1, [0], step=at_step(3, os.abort)), tmp_path, lambda i: i + 10).path
    run = under_pdb(record, "p 'here', unwrapped.steps, call.args[0]\nq\n")
    assert run.returncode == 0, run.stderr
    assert "('here', 2, 12)" in run.stdout.replace("np.int64(12)", "12")
    run = under_pdb(record, "p 'here', env.steps, call.args[0]\nq\n", "--until-step", "2")
    assert "('here', 1, 11)" in run.stdout.replace("np.int64(11)", "11")
    assert under_pdb(record, "c\n").returncode == -signal.SIGABRT
