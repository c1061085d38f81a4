"""`remuda replay --script` writes the calls of a record as a program without remuda."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from pool_envs import hooked
from replays import Picky, at_step, broken, make_record, recorded, recording, replay, restate

from remuda import CrashRecord, EnvError, load_record
from remuda._worker import worker_info


@pytest.fixture(autouse=True)
def no_worker_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes its process the worker of the record, which it is here for this test only."""
    monkeypatch.setenv("REMUDA_WORKER_INDEX", "0")
    for owner in (worker_info._Current, worker_info._current):
        monkeypatch.setattr(owner, "info", None)


ACTIONS = {"flag": [1], "force": np.array([[0.1, np.inf]], np.float32), "name": ["it's"], "bits": np.int8([[1, 0]])}


def picky(make: Any, directory: Path, **arguments: Any) -> CrashRecord:
    """Steps a `Picky` until it raises. Returns the record."""
    with recording([make], directory, backend="serial") as pool:
        pool.reset(**arguments)
        with pytest.raises(EnvError) as raised:
            for _ in range(4):
                pool.step(ACTIONS)
    assert raised.value.record is not None
    return load_record(raised.value.record)


def written(record: Path | CrashRecord, directory: Path, *options: str) -> Path:
    """Returns the script of a record."""
    path = directory / "repro.py"
    run = replay(record, "--script", str(path), *options)
    assert run.exit_code == 0, run.output
    assert f"calls to {path}" in run.stdout
    assert "remuda" not in [line.split()[1] for line in path.read_text().splitlines() if line.startswith("import")]
    return path


def assert_reproduces(script: Path, record: CrashRecord) -> None:
    """Runs a script, whose env must raise what the recorded one has raised: the text has all that it was given."""
    with pytest.raises(ValueError, match=re.escape(record.fault.message) + "$"):
        runpy.run_path(str(script))


def assert_left_to_the_reader(script: Path, factory: str) -> None:
    with pytest.raises(NotImplementedError, match=f"return the env of .*{factory}.* here"):
        runpy.run_path(str(script))


@pytest.mark.parametrize("arguments", [{}, {"seed": 5}, {"seed": 5, "options": {"level": [1, None]}}])
def test_the_script_makes_the_recorded_calls(arguments: Any, tmp_path: Path) -> None:
    """Without a seed it restores the random state."""
    record = picky(Picky, tmp_path, **arguments)
    assert_reproduces(written(record, tmp_path, "--trust", "--factory", "replays:Picky"), record)


def test_episodes_since_the_seed_are_resets_in_the_script(tmp_path: Path) -> None:
    wears_out = lambda env, action: broken() if env.total_steps == 9 else None  # noqa: E731
    record = recorded(hooked(1, [0], length=2, step=wears_out), tmp_path, backend="serial")
    text = written(record, tmp_path, "--trust", "--since-seed").read_text()
    assert text.count("env.reset(") == 5 and text.count("env.reset(seed=1)") == 1


@pytest.fixture
def registered() -> Iterator[None]:
    gymnasium.register("Picky-v0", "replays:Picky", max_episode_steps=9)
    yield
    del gymnasium.registry["Picky-v0"]


@pytest.mark.usefixtures("registered")
def test_a_registered_env_is_made_by_its_id_and_arguments_that_code_can_state(tmp_path: Path) -> None:
    record = picky(partial(gymnasium.make, "Picky-v0", tag=4, max_episode_steps=50), tmp_path)
    script = written(record, tmp_path, "--trust")
    assert "import replays\n" in script.read_text()
    assert "return gymnasium.make('Picky-v0', tag=4, max_episode_steps=50)\n" in script.read_text()
    assert_reproduces(script, record)
    record = picky(partial(gymnasium.make, "Picky-v0", tag=print), tmp_path)
    assert_left_to_the_reader(written(record, tmp_path, "--trust"), "")


def test_an_env_of_an_unknown_factory_is_left_to_the_reader(tmp_path: Path) -> None:
    assert_left_to_the_reader(written(make_record(tmp_path), tmp_path, "--trust"), "hooked")


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
