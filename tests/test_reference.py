"""The reference has each public name with an example, and docstrings describe parameters, results and errors."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from doc_pages import written
from test_public_names import MODULES, public_names

import remuda

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
NOT_OURS = ("remuda.gymnasium.AsyncState",)
HERE = ("remuda", "remuda.stats", "remuda.gymnasium", "remuda.sb3")  # can be imported in every test environment


def test_every_public_name_is_on_a_page() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    shown = set(re.findall(r"^#+ (remuda\.[\w.]+)$", text, re.MULTILINE)) - set(MODULES)
    public = {f"{package}.{name}" for package in MODULES for name in public_names(package)}
    assert public == shown


@pytest.mark.parametrize("package", MODULES)
def test_every_public_name_is_in_an_example_of_the_reference(package: str) -> None:
    """Names of other modules than `remuda` must be on the page of their module, because faces share names."""
    pages = PAGES if package == "remuda" else [ROOT / "docs" / "reference" / f"{package.partition('.')[2]}.md"]
    blocks = [block for page in pages for block in re.findall(r"^```python\n(.*?)^```", written(page), re.M | re.S)]
    words = set(re.findall(r"\w+", "\n".join(blocks)))
    missing = [name for name in public_names(package) if name not in words and f"{package}.{name}" not in NOT_OURS]
    assert not missing, f"expected examples in {[page.name for page in pages]}, got none of {missing}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="griffe, which reads the package, needs Python 3.11")
def test_pages_have_the_docstrings() -> None:
    pages = runpy.run_path(str(ROOT / "packaging" / "reference.py"))["Reference"]().pages
    assert set(pages) == {page.name for page in PAGES} - {"index.md"}, "expected each page in the index"
    stale = [page.name for page in PAGES if pages.get(page.name, page.read_text()) != page.read_text()]
    assert not stale, f"expected the docstrings of the package in {stale}, got others: run packaging/reference.py"


# -- docstrings ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Described:
    """A name that a user may call or read."""

    path: str
    found: Any
    text: str
    around: str = ""
    """What else may describe its parameters: the docstring of its class."""


def described() -> Iterator[Described]:
    for package in HERE:
        for name in public_names(package):
            if (path := f"{package}.{name}") in NOT_OURS:
                continue
            found = getattr(importlib.import_module(package), name)
            text = inspect.getdoc(found) or ""
            yield Described(path, found, text)
            if inspect.isclass(found) and not issubclass(found, (Enum, dict)):
                text = "".join(inspect.getdoc(base) or "" for base in found.__mro__ if is_ours(base))
                for member, value in own_members(found).items():
                    # A method without a docstring inherits that of the method that it overrides.
                    yield Described(f"{path}.{member}", value, inspect.getdoc(getattr(found, member)) or "", text)


def is_ours(cls: type[Any]) -> bool:
    return cls.__module__.startswith("remuda")


def own_members(cls: type[Any]) -> dict[str, Any]:
    """Returns the methods and properties that remuda defines, including those of private base classes."""
    bases = filter(is_ours, cls.__mro__)
    found: dict[str, Any] = {}
    for base in reversed(list(bases)):
        for name, value in vars(base).items():
            member = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                found[name] = member
    return found


def is_read_only(found: Any) -> bool:
    """Returns whether users read such objects but do not create them, for example batches and errors."""
    return inspect.isclass(found) and (issubclass(found, BaseException) or found.__name__ in READ_ONLY)


def has_constructor(found: Any) -> bool:
    """Returns whether the class has its own constructor, which checks its arguments."""
    is_plain = is_dataclass(found) and not hasattr(found, "__post_init__")
    return inspect.isclass(found) and not (is_plain or is_read_only(found) or issubclass(found, dict))


READ_ONLY = {
    *("Batch", "EnvState", "Failure", "TensorBatch", "TensorRollout", "Part", "WorkerChoice", "Call", "Collector"),
    *("Comparison", "Comparisons", "Durations", "Infos", "LazyInfos", "Evaluation", "PoolStats", "Rollout"),
    *("RolloutStep", "ShardRollouts", "TaskResults", "Trace", "Unit", "WorkerInfo"),
}

RAISES_NOTHING = {
    *(f"remuda.stats.{name}" for name in ("Durations.of", "Durations.quantile", "PoolStats.scalars")),
    *(f"remuda.{name}" for name in ("FaultPolicy.delay", "TaskResults.to_latex", "TaskResults.to_markdown")),
    *(f"remuda.{name}" for name in ("Rollout.lay_out", "RolloutStep.starts_episodes", "ShardRollouts.close")),
    *(f"remuda.{name}" for name in ("Ray.pool_type", "gymnasium.uninstall", "worker_info")),
    *(f"remuda.sb3.SubprocVecEnv.{name}" for name in ("has_written", "seed")),
}

ALL = list(described())


# A docstring that begins with one of these words describes the result in its first line.
TELLS_A_VALUE = re.compile(r"(An?|The|Each|How|Of|One|What|Whether|Where|`env\.\w+\()\b|`env\.")


def test_docstrings_describe_parameters_fields_results_and_errors() -> None:
    found = [f"{one.path}: {lack}" for one in ALL for lack in lacks(one)]
    assert not found, "\n".join(found)


def lacks(one: Described) -> Iterator[str]:
    """Yields what the docstring of a name should have, and has not."""
    if not one.text.strip():
        yield "a docstring"
    names = {field.name for field in fields(one.found) if field.name[0] != "_"} if is_dataclass(one.found) else set()
    missing = {name for name in names if not re.search(rf"\b{name}\b", one.text)}
    function = one.found.__init__ if inspect.isclass(one.found) else one.found
    if inspect.isfunction(function) and not is_read_only(one.found):
        parameters = inspect.signature(function).parameters.keys() - {"self", "cls", "args", "kwargs"}
        missing |= {name for name in parameters if not re.search(rf"\b{name}\b", one.text + one.around)}
    if missing:
        yield f"the names {missing}"
    is_call = inspect.isfunction(one.found)
    returned = inspect.signature(one.found).return_annotation if is_call else None
    tells_it = TELLS_A_VALUE.match(one.text) or re.search(r"\b(returns?|yields?)\b", one.text, re.IGNORECASE)
    if returned not in (None, "None", "NoReturn", "Self") and not tells_it:
        yield "'Returns:', or what comes back as its beginning"
    if (is_call and "Error." not in one.path) or has_constructor(one.found):
        tells = re.search(r"\braises\b", one.text, re.IGNORECASE) is not None
        if tells == (one.path in RAISES_NOTHING):
            yield "'Raises:', unless it is in RAISES_NOTHING"
    yield from lacking_errors(one)


def lacking_errors(one: Described) -> Iterator[str]:
    names = list(named_errors(one.text))
    if "Raises:\n" in one.text and not names:
        yield "'Name: when.' below 'Raises:'"
    home = max((package for package in HERE if one.path.startswith(f"{package}.")), key=len)
    for name in names:
        found = [pydoc.locate(f"{place}{name}") for place in (f"{home}.", "remuda.", "", "gymnasium.error.")]
        error = next(filter(None, found), None)
        if not (inspect.isclass(error) and issubclass(error, BaseException)):
            yield f"an error that exists in place of {name!r}"


def named_errors(text: str) -> Iterator[str]:
    """Yields the names before the colons in the section "Raises"."""
    section = re.search(r"^Raises:\n((?:[ \t]+.*\n?|\n)+)", text, re.MULTILINE)
    for entry in re.findall(r"^ {4}([\w.]+(?:, [\w.]+)*):", section[1] if section else "", re.MULTILINE):
        yield from entry.split(", ")


def test_every_error_is_in_a_docstring() -> None:
    described_errors = {name.rpartition(".")[2] for one in ALL for name in named_errors(one.text)}
    errors = {name for name in remuda.__all__ if name.endswith("Error")}
    assert errors - described_errors == {"RemudaError"}  # the base class
