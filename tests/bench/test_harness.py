"""The benchmark harness does not count rounds on a busy machine, and publishes no figures from them."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import COUNTING, FakeClock, FakeContender, fakes
from harness import quiet
from harness.options import parse_options
from harness.session import BusyError, Session

from remuda._bench import rounds
from remuda._bench.contenders import Plan

PLAN = Plan(COUNTING, num_envs=4, num_workers=2)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "usable_cores", lambda: 2)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Replaces the check for a quiet machine. The test fills the returned list with the answers for the next rounds."""
    to_come: list[bool] = []

    class FakeLoops(quiet.Loops):
        def __init__(self, count: int) -> None:
            self._processes = []

        def are_quiet(self) -> bool:
            return to_come.pop(0)

    monkeypatch.setattr(quiet, "Loops", FakeLoops)
    return to_come


def session(rounds: int = 2, **options: Any) -> Session:
    return Session(
        Namespace(**{"seconds": 8.0, "any_round": False, "json": None, "readme": False, **options}, rounds=rounds)
    )


def numbered() -> dict[str, Any]:
    """Returns turn functions that return how often they were called."""
    counts = {"a": 0, "b": 0}

    def turn(name: str) -> int:
        counts[name] += 1
        return counts[name]

    return {"a": lambda: turn("a"), "b": lambda: turn("b")}


def test_a_round_counts_if_two_loops_reach_nearly_twice_one() -> None:
    assert quiet.counts(100, 180)
    assert not quiet.counts(100, 179)


def test_two_loops_at_once_make_turns() -> None:
    with closing(quiet.Loops(2)) as loops:
        assert len(set(loops.pids)) == 2
        assert loops.turns(0.01, 1) > 0
        assert loops.turns(0.01, 2) > 0


def test_only_rounds_of_a_quiet_machine_count(machine: list[bool]) -> None:
    machine += [True, False, False, True]
    counting = session(rounds=2)
    assert counting.rounds("it", numbered()) == {"a": [1, 4], "b": [1, 4]}
    assert (counting.counted, counting.run) == (2, 4)
    assert list(counting.notes()) == ["\n2 of 4 rounds counted: two plain loops at once reached 0.9 of twice one."]


def test_after_three_times_the_rounds_a_busy_machine_raises(machine: list[bool]) -> None:
    machine += [False] * 5 + [True] + [True] * 3
    busy = session(rounds=2)
    with pytest.raises(BusyError, match=r"it: no figure is published, because the machine was busy. 1 of 6 rounds"):
        busy.rounds("it", numbered())
    assert len(machine) == 3


def test_uncounted_cases_are_named_and_the_others_are_shown(
    machine: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine += [True, False, False, False, True]
    some = session(rounds=1, readme=True)
    found = dict(some.measured("abc", lambda case: some.rounds(case, numbered())))
    assert list(found) == ["a", "c"]
    written: list[tuple[str, str]] = []
    monkeypatch.setattr("harness.session.write_section", lambda *section: written.append(section))
    some.publish("section", ["line"])
    assert "b: no figure is published" in capsys.readouterr().out
    assert not written


def test_every_round_counts_where_the_options_say_so(machine: list[bool]) -> None:
    assert session(rounds=2, any_round=True).rounds("it", numbered()) == {"a": [1, 2], "b": [1, 2]}


def test_on_one_core_no_round_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "usable_cores", lambda: 1)
    with pytest.raises(SystemExit, match="one core only"):
        session().rounds("it", numbered())
    with pytest.raises(SystemExit, match="one core only"):
        session().race([], PLAN)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[type[FakeContender]]:
    """Returns two contenders. The two loops at once reach twice one loop only in every second round."""
    clock = FakeClock()
    plain, ours, one, two = fakes(clock, {"plain loop": 1.0, "remuda": 0.25, "one loop": 0.5, "two loops": 0.25})
    turns = {two: 0}

    def begin_turn(self: FakeContender, seed: int) -> None:
        turns[two] += 1  # the first turn is the warm-up
        two.step_seconds = 0.25 if turns[two] % 2 else 0.5

    two.begin_turn = begin_turn  # type: ignore[method-assign]
    monkeypatch.setattr(quiet, "OneLoop", one)
    monkeypatch.setattr(quiet, "TwoLoops", two)
    race = rounds.race
    monkeypatch.setattr("remuda._bench.rounds.race", lambda *args, **more: race(*args, **more, clock=clock))
    return [plain, ours]


def test_a_race_combines_the_counted_rounds(kinds: list[type[FakeContender]]) -> None:
    racing = session(rounds=2)
    found = racing.race(kinds, PLAN)
    assert [entry.name for entry in found.entries] == ["plain loop", "remuda"]
    assert [len(entry.turns) for entry in found.entries] == [2, 2]
    assert found.ratio_to_ideal(found.remuda) == pytest.approx(4 / found.loops)
    assert racing.counted == 2 < racing.run


def test_any_round_and_readme_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", "--any-round", "--readme"])
    with pytest.raises(SystemExit):
        parse_options("", rounds=5)


def test_left_out_contenders_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    some = session()
    some.leave_out(["a", None, "a"])
    assert capsys.readouterr().err == "left out: a\n"
    assert list(some.notes()) == ["\nLeft out: a"]


def test_a_section_is_written_with_the_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, str]] = []
    monkeypatch.setattr("harness.session.write_section", lambda *section: written.append(section))
    some = session(readme=True, json=tmp_path / "f.json")
    some.leave_out(["a"])
    some.publish("it", ["line"], [1])
    assert written == [("it", "line\n\nLeft out: a")]
