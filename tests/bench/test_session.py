"""The scripts' sessions do not count rounds on a busy machine, and publish no figures from them."""

from __future__ import annotations

import itertools
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import bench_fakes
import pytest
from bench_fakes import COUNTING, FakeClock, FakeContender, fakes
from harness import pages, quiet, results
from harness.options import parse_options
from harness.results import Section
from harness.session import ANY_ROUND, QUICK, BusyError, Session
from harness.tables import Table

from remuda._bench import race
from remuda._bench.contenders import Plan

Output: TypeAlias = pytest.CaptureFixture[str]
Stored: TypeAlias = list[tuple[str, Section]]
PLAN = Plan(COUNTING, num_envs=4, num_workers=2)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "usable_cores", lambda: 2)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Replaces the check for a quiet machine. The test fills the returned list with the answers for the next rounds."""
    to_come: list[bool] = []
    monkeypatch.setattr(quiet.Loops, "are_quiet", lambda _: to_come.pop(0))
    return to_come


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Stored:
    """Replaces the writing of results.json and its pages. Returns the list of what is stored."""
    sections: Stored = []
    monkeypatch.setattr("harness.session.store", lambda *section: sections.append(section))
    return sections


def session(rounds: int = 2, **options: Any) -> Session:
    return bench_fakes.session(8.0, rounds, **{"any_round": False, **options})


def numbered() -> dict[str, Any]:
    """Returns turn functions that return how often they were called."""
    return {name: itertools.count(1).__next__ for name in "ab"}


def test_a_round_counts_if_two_loops_reach_nearly_twice_one() -> None:
    assert quiet.counts(100, 180) and not quiet.counts(100, 179)
    with closing(quiet.Loops(2)) as loops:
        assert loops.turns(0.01, 1) > 0 and loops.turns(0.01, 2) > 0


def test_only_rounds_of_a_quiet_machine_count(machine: list[bool]) -> None:
    machine += [True, False, False, True]
    counting = session(rounds=2)
    assert counting.rounds("it", numbered()) == {"a": [1, 4], "b": [1, 4]}
    assert list(counting.notes()) == ["2 of 4 rounds counted: two plain loops at once reached 0.9 of twice one."]
    assert session(rounds=2, any_round=True).rounds("it", numbered()) == {"a": [1, 2], "b": [1, 2]}


def test_after_three_times_the_rounds_a_busy_machine_raises(machine: list[bool]) -> None:
    machine += [False] * 5 + [True] + [True] * 3
    with pytest.raises(BusyError, match=r"it: no figure is published, because the machine was busy. 1 of 6 rounds"):
        session(rounds=2).rounds("it", numbered())
    assert len(machine) == 3


def test_uncounted_cases_are_named_and_the_others_are_shown(
    machine: list[bool], capsys: Output, stored: Stored
) -> None:
    machine += [True, False, False, False, True]
    some = session(rounds=1, readme=True)
    found = dict(some.measured("abc", lambda case: some.rounds(case, numbered())))
    assert list(found) == ["a", "c"]
    some.publish("section", ["line"])
    assert "b: no figure is published" in capsys.readouterr().out
    assert not stored


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

    def begin_turn(self: FakeContender) -> None:
        turns[two] += 1  # the first turn is the warm-up
        two.step_seconds = 0.25 if turns[two] % 2 else 0.5

    two.begin_turn = begin_turn  # type: ignore[method-assign]
    monkeypatch.setattr(quiet, "OneLoop", one)
    monkeypatch.setattr(quiet, "TwoLoops", two)
    run = race.race
    monkeypatch.setattr(race, "race", lambda *args, **more: run(*args, **more, clock=clock))
    return [plain, ours]


def test_a_race_combines_the_counted_rounds(kinds: list[type[FakeContender]]) -> None:
    racing = session(rounds=2)
    found = racing.race(kinds, PLAN)
    assert [(entry.name, len(entry.turns)) for entry in found.entries] == [("plain loop", 2), ("remuda", 2)]
    assert found.ratio_to_ideal(found.remuda) == pytest.approx(4 / found.cores)
    assert racing.counted == 2 < racing.run


def test_no_round_of_a_busy_machine_is_published(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", "--any-round", "--readme"])
    with pytest.raises(SystemExit):
        parse_options("", workloads=["a"], seconds=15.0, quick=3.0, rounds=5)
    assert "expected --readme without --any-round" in capsys.readouterr().err


def test_a_result_is_published_with_its_notes_and_its_part(capsys: Output, tmp_path: Path, stored: Stored) -> None:
    some = session(readme=True, json=tmp_path / "f.json")
    some.leave_out(["a", None, "a"])
    some.publish("it", ["line"], [1])
    found = capsys.readouterr()
    assert (found.out, found.err) == ("line\n\nLeft out: a\n", "left out: a\n")
    assert (tmp_path / "f.json").read_text() == "[\n  1\n]\n"
    session(readme=True, part="64 envs").publish("it", ["line"])
    assert stored == [("it", Section(["line", "Left out: a"], [])), ("it: 64 envs", Section(["line"], []))]


def test_figures_of_a_busy_machine_come_with_a_warning(capsys: Output) -> None:
    session(any_round=True).publish("it", ["line"])
    assert capsys.readouterr().out == f"**{ANY_ROUND}**\n\nline\n"
    assert session(is_quick=True).warnings() == [QUICK]


# -- the figures in results.json, and the pages that are generated from it -----------------------------


TABLE = Table(["env", "goal", "rate"], [["a", "1", "5"], ["a", "2", "5"], ["b [1]", "1", "6"]])
BUSY = "The machine was busy."


def test_the_pages_are_generated_from_the_results() -> None:
    """If this fails, a page was edited by hand. ``python benchmarks/picture.py`` writes the pages again."""
    sections = results.load()
    full, readme = ((results.FOLDER / name).read_text() for name in (pages.FULL, pages.README))
    assert full == pages.full_page(sections)
    assert readme == pages.with_small_tables(readme, sections)


def test_a_stored_section_is_on_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SMALL", {"one": ("env", "rate", "not measured")})
    readme = tmp_path / pages.README
    readme.write_text("above\n<!-- one -->\nold\n<!-- /one -->\nbelow\n")
    results.save({}, tmp_path)
    pages.store("one", Section([TABLE, "note"], [BUSY]), tmp_path)
    full = (tmp_path / pages.FULL).read_text()
    assert full.count("## `one.py`") == 1
    assert full.endswith(f"**{BUSY}**\n\n{TABLE}\n\nnote\n")
    small = "| env | rate |\n| --- | --- |\n| a | 5 |\n| b [1] | 6 |"
    assert readme.read_text() == f"above\n<!-- one -->\n**{BUSY}**\n\n{small}\n<!-- /one -->\nbelow\n"
