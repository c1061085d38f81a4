"""Every public name is in the reference, and its docstring names what it takes."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from test_public_names import FACES, public_names

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
PACKAGES = ("remuda", *(f"remuda.{face}" for face in FACES))
NOT_OURS = ("remuda.gymnasium.AsyncState",)
HERE = ("remuda", "remuda.gymnasium", "remuda.sb3")  # what can be imported wherever the tests are run


def test_every_public_name_has_its_place_on_a_page() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    shown = set(re.findall(r"^\.\. auto(?:class|exception|function):: ([\w.]+)", text, re.MULTILINE))
    public = {f"{package}.{name}" for package in PACKAGES for name in public_names(package)}
    assert public - shown == set()
    assert shown - public == set()


def described() -> Iterator[tuple[str, Any, str, str]]:
    """What a user may call: its name, itself, its docstring, and what else may describe its parameters."""
    for package in HERE:
        for name in public_names(package):
            found = getattr(importlib.import_module(package), name)
            if f"{package}.{name}" in NOT_OURS:
                continue
            path, text = f"{package}.{name}", inspect.getdoc(found) or ""
            yield path, found, text, ""
            if inspect.isclass(found) and not issubclass(found, (Enum, dict)):
                for member, value in vars(found).items():
                    if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                        # A method without words of its own has those of the one that it overrides.
                        yield f"{path}.{member}", value, inspect.getdoc(getattr(found, member)) or "", text


ALL = list(described())


@pytest.mark.parametrize(("path", "found", "own", "around"), ALL, ids=[path for path, *_ in ALL])
def test_it_has_a_docstring_that_names_its_parameters(path: str, found: Any, own: str, around: str) -> None:
    assert own.strip(), f"expected a docstring of {path}, got none"
    function = found.__init__ if inspect.isclass(found) else found
    if not inspect.isfunction(function) or is_made_by_others(found):
        return
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")]
    missing = [name for name in names if not re.search(rf"\b{name}\b", own + around)]
    assert not missing, f"expected the docstring of {path} to name its parameters, got none of {missing}"


def is_made_by_others(found: Any) -> bool:
    """Batches, errors and the like, which users read and do not make."""
    return inspect.isclass(found) and (issubclass(found, BaseException) or found.__name__ in READ_ONLY)


READ_ONLY = (
    "Batch",
    "EnvState",
    "TensorBatch",
    "Part",
    "Choice",
    "Call",
    "Collector",
    "Infos",
    "LazyInfos",
    "Evaluation",
    "PoolStats",
    "Rollout",
    "RolloutStep",
    "Trace",
    "WorkerInfo",
)
