"""The scripts that run the benchmarks of other projects, with remuda's classes in the place of theirs."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fetched
import gymnasium_vector_step
import pytest
import sb3_pool
from bench_fakes import COUNTING, session
from fetched import Source
from harness.tables import markdown

if sys.platform != "linux":
    pytest.skip("the scripts start worker processes", allow_module_level=True)

RATES = {"theirs": [100.0, 110.0, 90.0], "other": [10.0] * 3, "remuda-1-per-env": [500.0] * 3, "remuda": [90.0] * 3}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Source]:
    """Returns a function that makes a source with a content, which is "downloaded" from a local file."""
    monkeypatch.setattr(fetched, "BUILD", tmp_path / "build")

    def make(name: str, content: str) -> Source:
        (tmp_path / name).write_text(content)
        monkeypatch.setattr(Source, "url", (tmp_path / name).as_uri())
        return Source("some/repository", "c0ffee", f"folder/{name}", hashlib.sha256(content.encode()).hexdigest())

    return make


def test_a_source_is_downloaded_once_or_given_with_its_content(source: Callable[..., Source], tmp_path: Path) -> None:
    found, given = source("pinned.py", "x = 1"), tmp_path / "mine.py"
    path = found.fetch(None)
    (tmp_path / "pinned.py").unlink()
    assert found.fetch(None) == path == tmp_path / "build" / "c0ffee" / "pinned.py"
    assert path.read_text() == "x = 1"
    given.write_text("x = 2")
    with pytest.raises(SystemExit, match=r"mine.py: expected file://.*pinned.py with sha256 .*, got "):
        found.fetch(given)
    assert replace(found, sha256=hashlib.sha256(b"x = 2").hexdigest()).fetch(given).read_text() == "x = 2"
    path.unlink()
    with pytest.raises(SystemExit, match="Download it elsewhere, and pass it with --source FILE"):
        found.fetch(None)


def test_losses_are_in_the_table() -> None:
    assert fetched.columns(RATES)[-3:] == ["fastest other", "remuda : fastest other", ""]
    assert fetched.cells(RATES) == ["100", "10", "500", "90", "theirs", "0.9", "**falls short**"]


def test_gymnasiums_function_measures_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium_vector_step.WORKLOADS, "counting", lambda: COUNTING)
    case = gymnasium_vector_step.Case("counting", 2)
    rates = gymnasium_vector_step.measure(case, session())
    assert list(rates) == ["AsyncVectorEnv", "SyncVectorEnv", "remuda-1-per-env", "remuda"]
    assert all(rate > 0 for (rate,) in rates.values())
    page = markdown(gymnasium_vector_step.markdown([(case, rates)], session()))
    assert "| counting | 2 |" in page


NOTEBOOK = """
PROCESSES_TO_TEST, TRAIN_STEPS = [1, 2], 6
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
training_times = []
for size in PROCESSES_TO_TEST:
    made = [gym.make] * size
    envs = DummyVecEnv(made) if size == 1 else SubprocVecEnv(made, start_method="fork")
    training_times.append(3.0 / envs.reset().shape[0])
    envs.close()
"""


def test_the_notebook_runs_on_the_class_in_place(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    import sb3_multiprocessing

    code = ["import bench_fakes\n", "%matplotlib inline\n", NOTEBOOK.replace("gym.make", "bench_fakes.NotedEnv")]
    sources = [["!pip install x\n"], code, ["raise SystemError"]]
    book = {"cells": [{"cell_type": "code", "source": each} for each in sources]}
    (tmp_path / "book.ipynb").write_text(json.dumps(book))
    text = sb3_multiprocessing.first_experiment(tmp_path / "book.ipynb")
    made: list[Any] = []

    def noting(env_fns: Any, **options: Any) -> Any:
        made.append((len(env_fns), options))
        return ours(env_fns, **options)

    ours = sb3_multiprocessing.classes()["remuda"]
    assert sb3_multiprocessing.run(text, noting) == {1: 2.0, 2: 4.0}
    assert made == [(2, {"start_method": "fork"})]


POOL = """
from stable_baselines3.common.vec_env import DummyVecEnv

class PoolVecEnv(DummyVecEnv):
    processes = ()

    def __init__(self, env_fns, num_worker, start_method):
        super().__init__(env_fns)
"""


def test_the_proposed_pool_races(source: Callable[..., Source], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    monkeypatch.setattr(sb3_pool.PoolVecEnv, "path", source("proposed_pool.py", POOL).fetch(None), raising=False)
    kinds = [sb3_pool.PoolVecEnv, sb3_pool.KNOWN["remuda-sb3"]]
    found = sb3_pool.measure("CartPole-v1", 2, kinds, session())
    assert [(one.name, one.error) for one in found.entries[2:]] == [("sb3-pool", None), ("remuda-sb3", None)]
    assert "| CartPole-v1 | 2 |" in markdown(sb3_pool.markdown([found]))


def test_remuda_is_called_like_torchrls_pool() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchrl")
    import torchrl_envs
    from torchrl.testing.mocking_classes import CountingEnv

    pool = torchrl_envs.RemudaEnvPool([lambda: CountingEnv(max_steps=2)] * 2, backend="multiprocessing")
    try:
        tensors, counts = pool.reset(), []
        for _ in range(3):
            tensors["action"] = torch.ones(2, 1)
            pool.async_step_and_maybe_reset_send(tensors)
            stepped, tensors = pool.async_step_and_maybe_reset_recv(min_get=2, max_get=2)
            ends = stepped["next", "terminated"].flatten().tolist()
            counts.append((stepped["next", "observation"][0].item(), ends[0], tensors["observation"][0].item()))
        assert counts == [(1.0, False, 1.0), (2.0, False, 2.0), (3.0, True, 0.0)]
    finally:
        pool._maybe_shutdown()
