"""The benchmark of "auto": its races, on envs that cost nothing."""

from __future__ import annotations

import auto
import pytest
from auto import Case, Race, line, race
from pool_envs import CountingEnv


def test_a_race_has_all_contenders_in_every_round() -> None:
    (found,) = race(Case("counting", CountingEnv, 2), "gymnasium", {"none": lambda: None}, seconds=1e-3, rounds=2)
    assert found.batch_seconds.keys() == auto.FAMILIES["gymnasium"].keys()
    assert all(len(rounds) == 2 and min(rounds) > 0 for rounds in found.batch_seconds.values())
    assert found.chosen != "None"
    assert line(found).startswith("| counting | gymnasium | none |")


def test_a_ratio_is_that_of_speeds_in_the_same_rounds() -> None:
    found = Race("envs", "sb3", "none", "1 worker: so", {"loop": [1.0, 8.0, 3.0], "auto": [2.0, 4.0, 3.0]})
    assert found.ratio("auto") == pytest.approx(1.0)
    assert line(found).endswith("| 1 worker |")


def test_every_case_is_named_after_its_envs() -> None:
    names = [case.name for case in auto.cases()]
    assert len(set(names)) == len(names)
    assert [case.num_envs for case in auto.cases() if case.name.startswith("cartpole")] == [4, 8, 64]
