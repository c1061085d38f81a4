"""`starts_serially=True`: workers that start one after another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from accidents import leave, raise_value_error
from pairs import each
from pool_envs import Diary, Gate, HookedEnv, gated

from remuda import EnvError, Pool, StartTimeoutError, WorkerDiedError


def noting(diary: Diary, num_envs: int) -> list[Any]:
    """Returns factories that write a line when they begin and end, and are busy in between."""

    def build(env: HookedEnv) -> None:
        diary.note("begin", env.tag)
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass
        diary.note("end", env.tag)

    return [lambda tag=i: HookedEnv(tag, build=build) for i in range(num_envs)]


@each(start_method=["forkserver", "fork"], num_workers=[6, 3])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_workers_start_one_after_another(num_workers: int, start_method: Any, tmp_path: Path) -> None:
    diary = Diary(tmp_path / "notes")
    with Pool(noting(diary, 6), num_workers=num_workers, starts_serially=True, start_method=start_method) as pool:
        assert pool.reset().obs[:, 0].tolist() == list(range(6))
    assert diary.lines() == [f"{event} {i}" for i in range(6) for event in ("begin", "end")]


def test_workers_start_concurrently_by_default(tmp_path: Path) -> None:
    """Builds wait for each other in both directions, so they must overlap."""
    first, second = Gate(tmp_path, "first"), Gate(tmp_path, "second")
    builds = [lambda _: first.wait(), lambda _: first.let_pass(), lambda _: second.wait(), lambda _: second.let_pass()]
    with Pool([lambda build=build: HookedEnv(build=build) for build in builds]) as pool:
        pool.reset()


@pytest.mark.parametrize(
    ("ends", "error", "text"),
    [(raise_value_error, EnvError, "env 1 .*broken"), (leave, WorkerDiedError, "worker 1")],
)
def test_a_failed_build_is_the_last_one(ends: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    diary = Diary(tmp_path / "notes")
    first, *rest = noting(diary, 3)
    with pytest.raises(error, match=text):
        Pool([first, ends, *rest], starts_serially=True)
    assert diary.lines() == ["begin 0", "end 0"]


def test_start_timeout_covers_all_builds_of_a_serial_start(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with pytest.raises(StartTimeoutError, match=r"=1 s, got no answer for the envs \[1\] \(workers \[1\]\)"):
        Pool(gated([None, gate, None], "build"), starts_serially=True, start_timeout=1)
