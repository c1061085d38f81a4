"""Measures the CPU seconds of each group of tests: those of a folder, with all processes that they start.

Unlike times, CPU seconds do not change with the load. Each run of pytest writes them to `build/cpu/`, prints the
dearest groups, and names those that have grown since the table in CONTRIBUTING.md was written. The speed of the
machine does not matter, because a group is compared with the others. `python tests/cpu_seconds.py` writes that table
anew from `build/cpu/`, after `make test`.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

_TOP = Path(__file__).parents[1]
_PAGE, _FOLDER = _TOP / "CONTRIBUTING.md", _TOP / "build/cpu"
_ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \|$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 1
_LEAST = 10  # CPU seconds of a group in the table
_PRINTED = 10  # groups
_GROWTH = 1.2  # a group that costs more than this, relative to the table and to most other groups, is printed
_COMPARED = 5  # groups, from which on the speed of this machine is known

_BEGIN = pytest.StashKey[float]()
_seconds: Counter[str] = Counter()  # by group


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    item.stash[_BEGIN] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "teardown":
        report.user_properties.append(("cpu", _cpu_seconds() - item.stash[_BEGIN]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":  # with xdist, this process reads the reports of all others
        _seconds[_group_of(report.nodeid)] += dict(report.user_properties)["cpu"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _seconds:
        return
    environment = Path(sys.prefix).name.lstrip(".")
    named = {f"{group}{'' if environment == 'venv' else f' ({environment})'}": cpu for group, cpu in _seconds.items()}
    _FOLDER.mkdir(parents=True, exist_ok=True)
    (_FOLDER / f"{environment}-{min(_seconds).replace('/', '-')}.json").write_text(json.dumps(named, indent=1))
    known = {group: int(cpu) for group, cpu in _ROW.findall(_PAGE.read_text("utf-8"))}
    ratios = [cpu / known[group] for group, cpu in named.items() if group in known]
    pace = median(ratios) if len(ratios) >= _COMPARED else math.inf
    terminalreporter.section(f"CPU seconds: {sum(_seconds.values()):.0f}")
    for group, cpu in Counter(named).most_common(_PRINTED):
        terminalreporter.line(f"{cpu:6.0f} {group}")
    for group, cpu in named.items():
        if group in known and cpu > _GROWTH * pace * known[group] + 1:
            expected = f"{known[group]} s in CONTRIBUTING.md, of which this machine takes {pace:.0%}"
            terminalreporter.line(f"{group} takes {cpu:.0f} s, {expected}: find out why")


def _group_of(nodeid: str) -> str:
    parts = Path(nodeid.partition("::")[0]).parts[1:-1]
    return "/".join(("tests", *parts[:2]))


def _cpu_seconds() -> float:
    """Returns the CPU seconds of this process and its descendants so far, also of those that have ended."""
    total, todo = 0, [str(os.getpid())]
    while todo:
        process = Path("/proc", todo.pop())
        try:
            total += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for task in (process / "task").iterdir():
                todo += (task / "children").read_text().split()
        except OSError:
            pass  # the process or thread has just ended, or this is not Linux
    return total / _TICKS


def _write_table() -> None:
    groups: Counter[str] = Counter()
    for path in _FOLDER.glob("*.json"):
        groups |= Counter(json.loads(path.read_text()))  # the larger one: others are of runs of a part of the group
    table = "| tests | CPU seconds |\n|---|---|\n"
    rows = "".join(f"| `{group}` | {cpu:.0f} |\n" for group, cpu in groups.most_common() if cpu >= _LEAST)
    begin, _, rest = _PAGE.read_text("utf-8").partition(table)
    _PAGE.write_text(begin + table + rows + re.sub(r"\A(\|.*\n)*", "", rest), "utf-8")


if __name__ == "__main__":
    _write_table()
