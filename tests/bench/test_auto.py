"""The benchmark of "auto", run with envs that cost nothing."""

from __future__ import annotations

import auto
import pytest
from auto import Case, Race, measure, row
from bench_fakes import COUNTING, entry, result, session

COUNTED = Case("counting", COUNTING, 2)


def test_a_race_has_all_contenders_in_every_round() -> None:
    found = Race(COUNTED, "gymnasium", "none", measure(COUNTED, "gymnasium", "none", session(0.02, rounds=2)))
    entries = [found.entry(column) for column in auto.FAMILIES["gymnasium"]]
    assert list(found.result.entries) == entries
    assert [(entry.error, len(entry.turns)) for entry in entries if entry is not None] == [(None, 2)] * 8
    assert row(found)[:3] == ["counting", "gymnasium", "none"]
    assert row(found)[-1] == "stepped by the caller"


def test_a_ratio_is_that_of_speeds_in_the_same_rounds() -> None:
    raced = result(entry("sb3-dummy", [8, 1, 3]), entry("remuda-sb3-auto", [4, 2, 3], num_workers=1))
    found = Race(COUNTED, "sb3", "none", raced)
    assert found.ratio("auto") == pytest.approx(1.0)
    assert found.ratio("caller") is None
    assert row(found)[-1] == "1 workers for 2 envs"


def test_every_case_is_named_after_its_envs() -> None:
    names = [case.name for case in auto.cases()]
    assert len(set(names)) == len(names)
    assert [case.num_envs for case in auto.cases() if case.name.startswith("cartpole")] == [4, 8, 64]
