"""`make check` finds the tests of a change."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

_TOP = Path(__file__).parents[1]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(_TOP)
    return runpy.run_path("packaging/check.py")


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/remuda/_engine/pool/part.py", "tests/engine/pool"),
        ("src/remuda/_training/tasks/task.py", "tests/training"),
        ("src/remuda/sb3/part.py", "tests/faces/sb3"),
        ("src/remuda/errors.py", "tests/test_public_names.py"),
        ("src/remuda/errors.py", "tests/test_reference.py"),
        ("tests/wire/test_blobs.py", "tests/wire/test_blobs.py"),
        ("tests/vector_reward_envs.py", "tests/faces/test_vector_rewards.py"),
        ("docs/pool.md", "tests/test_docs.py"),
    ],
)
def test_a_change_has_tests(changed: str, tests: str, check: dict[str, Any]) -> None:
    assert tests in list(check["_own_tests"]([Path(changed)]))


def test_folders_that_import_a_changed_one_are_tested_too(check: dict[str, Any]) -> None:
    found = list(check["_tests_of_importers"]([Path("src/remuda/_wire/codec.py")]))
    assert {"tests/worker", "tests/engine/startup"} <= set(found)
