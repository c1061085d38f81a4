"""`make check` finds the tests of a change."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_TOP = Path(__file__).parents[1]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(_TOP)
    spec = importlib.util.spec_from_file_location("check", _TOP / "packaging/check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
def test_a_change_has_tests(changed: str, tests: str, check: Any) -> None:
    assert tests in list(check._own_tests([Path(changed)]))


def test_folders_that_import_a_changed_one_are_tested_too(check: Any) -> None:
    found = list(check._tests_of_importers([Path("src/remuda/_wire/codec.py")]))
    assert {"tests/worker", "tests/engine/startup"} <= set(found)
