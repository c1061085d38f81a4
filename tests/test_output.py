"""Blocks of output in the pages, beside what is printed. `tests/cli/test_bench.py` has the README's, of the demo."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doc_pages import output_blocks, shape
from pool_envs import hooked
from replays import assert_reproduced, at_step, broken, fail, recording, replay

ROOT = Path(__file__).parents[1]

if sys.platform != "linux":
    pytest.skip("worker processes need Linux", allow_module_level=True)


def read_invalid_memory() -> None:
    ctypes.string_at(0)


def failure(act: Callable[[], Any], step: int, **options: Any) -> Any:
    """Returns the error of a pool whose env 1 acts in a step."""
    with recording(hooked(2, step=at_step(step, act)), **options) as pool:
        pool.reset(seed=7)
        return fail(pool, lambda _: 3)


def test_all_pages_with_output_are_compared() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert {page.name for page in pages if output_blocks(page)} == {"README.md", "faults.md", "crash-records.md"}


def test_errors(tmp_path: Path) -> None:
    errors = [failure(act, 1, directory=tmp_path, crash_dir=None) for act in (broken, read_invalid_memory)]
    (shown,) = output_blocks(ROOT / "docs" / "faults.md")
    assert [shape(error) for error in shown.split("\n\n")] == [shape(f"{type(one).__name__}: {one}") for one in errors]


def test_a_replay(tmp_path: Path) -> None:
    error = failure(read_invalid_memory, 42, directory=tmp_path)
    run = replay(error.record, "--trust")
    assert_reproduced(run)
    (shown,) = output_blocks(ROOT / "docs" / "crash-records.md")
    begin, end = shape(shown).split("...")
    last = shape(run.stdout.splitlines()[-1])
    assert last.startswith(begin) and last.endswith(end)
