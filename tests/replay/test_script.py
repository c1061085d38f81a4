"""`remuda replay --script` writes the calls of a record as a program without remuda."""

from __future__ import annotations

import re
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from pool_envs import hooked
from replays import Picky, at_step, broken, fail, make_record, recording, replay, restate

from remuda import EnvError, Pool, load_record
from remuda._worker import worker_info


@pytest.fixture(autouse=True)
def no_worker_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes its process the worker of the record, which it is here for this test only."""
    monkeypatch.setenv("REMUDA_WORKER_INDEX", "0")
    for owner in (worker_info._Current, worker_info._current):
        monkeypatch.setattr(owner, "info", None)


ACTIONS = {"flag": [1], "force": np.array([[0.1, np.inf]], np.float32), "name": ["it's"], "bits": np.int8([[1, 0]])}


def record_of(pool: Pool) -> Path:
    """Steps a `Picky` until it raises. Returns the record."""
    pool.step(ACTIONS)
    with pytest.raises(EnvError) as raised:
        for _ in range(3):
            pool.step(ACTIONS)
    assert raised.value.record is not None
    return raised.value.record


def written(record: Path, directory: Path, *options: str) -> Path:
    """Returns the script of a record."""
    path = directory / "repro.py"
    run = replay(record, "--script", str(path), *options)
    assert run.exit_code == 0, run.output
    assert f"calls to {path}" in run.stdout
    assert "remuda" not in [line.split()[1] for line in path.read_text().splitlines() if line.startswith("import")]
    return path


def assert_reproduces(script: Path, record: Path) -> None:
    """Runs a script, whose env must raise what the recorded one has raised: the text has all that it was given."""
    with pytest.raises(ValueError, match=re.escape(load_record(record).fault.message) + "$"):
        runpy.run_path(str(script))


@pytest.mark.parametrize("arguments", [{}, {"seed": 5}, {"seed": 5, "options": {"level": [1, None]}}])
def test_the_script_makes_the_recorded_calls(arguments: Any, tmp_path: Path) -> None:
    """Without a seed it restores the random state."""
    with recording([Picky], tmp_path, backend="serial") as pool:
        pool.reset(**arguments)
        record = record_of(pool)
    script = written(record, tmp_path, "--trust", "--factory", "replays:Picky")
    assert_reproduces(script, record)


def test_episodes_since_the_seed_are_resets_in_the_script(tmp_path: Path) -> None:
    wears_out = lambda env, action: broken() if env.total_steps == 9 else None  # noqa: E731
    with recording(hooked(1, [0], length=2, step=wears_out), tmp_path, backend="serial") as pool:
        pool.reset(seed=1)
        record = fail(pool).record
    text = written(record, tmp_path, "--trust", "--since-seed").read_text()
    assert text.count("env.reset(") == 5 and text.count("env.reset(seed=1)") == 1


def test_a_registered_env_is_made_by_its_id(tmp_path: Path) -> None:
    gymnasium.register("Picky-v0", "replays:Picky", max_episode_steps=9)
    try:
        make = partial(gymnasium.make, "Picky-v0", tag=4, max_episode_steps=50)
        with recording([make], tmp_path, backend="serial") as pool:
            pool.reset(seed=5)
            record = record_of(pool)
        script = written(record, tmp_path, "--trust")
        assert "import replays\n" in script.read_text()
        assert "return gymnasium.make('Picky-v0', tag=4, max_episode_steps=50)\n" in script.read_text()
        assert_reproduces(script, record)
    finally:
        del gymnasium.registry["Picky-v0"]


def test_an_env_of_an_unknown_factory_is_left_to_the_reader(tmp_path: Path) -> None:
    script = written(make_record(tmp_path), tmp_path, "--trust")
    with pytest.raises(NotImplementedError, match=r"return the env of .*hooked.* here"):
        runpy.run_path(str(script))


def test_arguments_that_code_cannot_state_are_left_to_the_reader(tmp_path: Path) -> None:
    gymnasium.register("Picky-v0", "replays:Picky")
    try:
        with recording([partial(gymnasium.make, "Picky-v0", tag=print)], tmp_path, backend="serial") as pool:
            pool.reset(seed=5)
            script = written(record_of(pool), tmp_path, "--trust")
        with pytest.raises(NotImplementedError, match="return the env of .* here"):
            runpy.run_path(str(script))
    finally:
        del gymnasium.registry["Picky-v0"]


def test_texts_of_a_record_stay_comments(tmp_path: Path) -> None:
    record = make_record(tmp_path)
    restate(record, lambda stated: {"fault": {**stated["fault"], "error": "one\nimport two\r\x0cimport three"}})
    lines = written(record, tmp_path, "--trust").read_text().splitlines()
    assert not [line for line in lines if line.startswith(("import two", "import three"))]
    assert lines[0].startswith("# The last call failed: exception in step. one import two")


def test_a_script_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    run = replay(make_record(tmp_path), "--trust", "--script", str(tmp_path / "none" / "repro.py"))
    assert run.exit_code == 2
    assert "expected a directory for --script that is there, got " in run.stderr


def test_a_script_has_the_failing_step(tmp_path: Path) -> None:
    record = make_record(tmp_path, at_step(2, broken))
    with pytest.raises(ValueError, match="broken"):
        runpy.run_path(str(written(record, tmp_path, "--factory", "replays:failing_in_step_1")))
