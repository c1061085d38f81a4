"""A run of a benchmark: interleaved rounds under the noise rule, and publishing of the result."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from remuda._bench import race
from remuda._bench.contenders import Contender, Plan
from remuda._bench.results import Result

from . import quiet
from .pages import store
from .results import Section
from .tables import Block, markdown

TRIES = 3
"""The limit of all rounds, as a multiple of the rounds that have to count."""

ANY_ROUND = "All rounds count here, whether the machine was busy or not: no figures to publish."
QUICK = "Measured with `--quick`: two contenders that run the same program differ by up to 22 %."

Case = TypeVar("Case")
Outcome = TypeVar("Outcome")


class BusyError(Exception):
    """Raised if too few rounds counted, because the machine was busy."""


class Session:
    """Runs rounds until enough of them count, and publishes the figures together with the number of counted rounds.

    Args:
        options: Of the command line (`parse_options`). A session reads ``rounds``, ``seconds``, ``any_round``,
            ``is_quick``, ``json``, ``readme`` and ``part``.
    """

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.counted = self.run = 0
        """Rounds that counted, and all rounds that were run."""
        self.busy: list[str] = []
        """A sentence for each measurement that is not published."""
        self.left_out: list[str] = []
        """The reasons why contenders and workloads are left out."""

    def leave_out(self, reasons: Iterable[str | None]) -> None:
        """Prints each new reason for leaving something out, and keeps it for the text below the table. Skips None."""
        for reason in reasons:
            if reason is not None and reason not in self.left_out:
                self.left_out.append(reason)
                print(f"left out: {reason}", file=sys.stderr, flush=True)

    # -- measuring -----------------------------------------------------------------------------------------

    def measured(self, cases: Iterable[Case], measure: Callable[[Case], Outcome]) -> Iterator[tuple[Case, Outcome]]:
        """Measures each case. Yields the cases for which enough rounds counted, with their outcome."""
        for case in cases:
            try:
                yield case, measure(case)
            except BusyError as busy:
                self.busy.append(str(busy))

    def rounds(self, what: str, turns: Mapping[str, Callable[[], Outcome]]) -> dict[str, list[Outcome]]:
        """Runs the contenders' turns in rounds: A B C, A B C.

        Args:
            what: Name of the measurement, for messages.
            turns: A turn of each contender, by its name. A turn returns its figure.

        Returns:
            The figures of each contender in the rounds that counted.

        Raises:
            BusyError: Too few rounds counted.
        """
        _announce(what)
        found: dict[str, list[Outcome]] = {name: [] for name in turns}
        if self.options.any_round:
            for _ in range(self.options.rounds):
                _append(found, {name: turn() for name, turn in turns.items()})
            return found
        quiet.require_cores()
        counted = run = 0
        with closing(quiet.Loops(2)) as loops:
            while counted < self.options.rounds and run < TRIES * self.options.rounds:
                run += 1
                is_quiet = loops.are_quiet()
                figures = {name: turn() for name, turn in turns.items()}
                if is_quiet:
                    counted += 1
                    _append(found, figures)
        _show(found)
        self._note(what, counted, run)
        return found

    def race(self, kinds: Sequence[type[Contender]], plan: Plan, lead_in: float = 0.0) -> Result:
        """Races contenders (`remuda._bench`) for ``seconds`` each. The result has the rounds that counted.

        If some rounds do not count, another race with new contenders makes up for them. ``lead_in``: the minimum of
        seconds to step before each turn without counting.

        Raises:
            BusyError: Too few rounds counted.
        """
        wanted, seconds = self.options.rounds, self.options.seconds
        what = f"{plan.workload.name}, {plan.num_envs} envs"
        _announce(what)
        if self.options.any_round:
            return race.race(kinds, plan, seconds=seconds, rounds=wanted, lead_in=lead_in)
        quiet.require_cores()
        results: list[Result] = []
        counted = run = 0
        while counted < wanted and run < TRIES * wanted:
            count = min(wanted - counted, TRIES * wanted - run)
            with_loops, share = [*kinds, quiet.OneLoop, quiet.TwoLoops], seconds * count / wanted
            found = race.race(with_loops, plan, seconds=share, rounds=count, lead_in=lead_in)
            *entries, one, two = found.entries
            is_counted = quiet.counted_rounds(one, two)
            for entry in entries:
                entry.turns = [turn for turn, is_one in zip(entry.turns, is_counted, strict=False) if is_one]
            results.append(replace(found, entries=entries, rounds=wanted, seconds=seconds))
            counted, run = counted + sum(is_counted), run + count
        joined = _joined(results)
        _show({entry.name: [round(rate) for rate in entry.rates] for entry in joined.entries})
        self._note(what, counted, run)
        return joined

    def _note(self, what: str, counted: int, run: int) -> None:
        print(f"{what}: {counted} of {run} rounds counted", file=sys.stderr, flush=True)
        self.run += run
        self.counted += counted
        if counted < self.options.rounds:
            raise BusyError(
                f"{what}: no figure is published, because the machine was busy. "
                f"{counted} of {run} rounds counted, {self.options.rounds} are needed."
            )

    # -- publishing ----------------------------------------------------------------------------------------

    def publish(self, name: str, blocks: Iterable[Block], figures: Iterable[Any] = ()) -> None:
        """Prints the tables and notes of a result, with the warnings first.

        ``--json`` writes the figures of all rounds. ``--readme`` stores the blocks in results.json under the name, and
        writes the pages again. If a measurement is not published, results.json stays as it is.
        """
        section = Section([*blocks, *self.notes()], self.warnings())
        print(markdown(section.shown()))
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(list(figures), indent=2) + "\n")
        if self.options.readme and self.busy:
            print("results.json is left as it is.", file=sys.stderr)
        elif self.options.readme:
            store(name if self.options.part is None else f"{name}: {self.options.part}", section)

    def notes(self) -> Iterator[str]:
        """Yields the paragraphs below a table: contenders left out, and the counted rounds."""
        for reason in self.left_out:
            yield f"Left out: {reason}"
        if self.run:
            yield f"{self.counted} of {self.run} rounds counted: two plain loops at once reached 0.9 of twice one."

    def warnings(self) -> list[str]:
        """Returns a sentence for each reason not to trust the figures. Tables and pictures show them."""
        found = {ANY_ROUND: self.options.any_round, QUICK: self.options.is_quick}
        return [*(sentence for sentence, is_so in found.items() if is_so), *self.busy]


def _announce(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def _show(found: Mapping[str, list[Any]]) -> None:
    """Prints the figures of a measurement, which a run that is stopped later would lose otherwise."""
    for name, figures in found.items():
        print(f"  {name}: {', '.join(map(str, figures))}", file=sys.stderr, flush=True)


def _append(found: dict[str, list[Outcome]], figures: Mapping[str, Outcome]) -> None:
    for name, figure in figures.items():
        found[name].append(figure)


def _joined(results: Sequence[Result]) -> Result:
    """Joins the results of several races of one measurement. Ignores a contender's turns in races after it failed."""
    first, *others = results
    for result in others:
        for entry, more in zip(first.entries, result.entries, strict=True):
            if entry.error is None:
                entry.turns += more.turns
                entry.error = more.error
    return first
