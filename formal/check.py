"""Checks the models with Spin: the model of the core must hold, and Spin must find the mistake in every mutant.

    python formal/check.py                    all cases, in two minutes
    python formal/check.py doorbell SEND      only cases with one of these words in their name
    python formal/check.py --thorough         also larger sizes: a minute more, 1 GB
    python formal/check.py --show LOOK_FIRST  the counterexample for this mistake, step by step

Fails if an outcome is not the expected one. A mistake that Spin does not find, or for which it reports another kind of
error, counts as much as an error in a model that should hold.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

HOLDS = "holds"
# The names of Spin's errors.
ASSERTION = "assertion violated"
STUCK = "invalid end state"  # Here a process sleeps forever.
ENDLESS = "acceptance cycle"  # Here processes run forever without progress.

# The processes that consist of inlined code.
INLINED = {f"proctype {process}" for process in ("Pool", "Supervisor", "CallerA", "CallerB", "Logger")} | {"claim ends"}

MEMORY_MB = 2500  # the limit of each verifier
DEPTH = 100_000
SECONDS = 600


@dataclass(frozen=True)
class Case:
    """One run of Spin, on a model or on a mutant of it.

    Attributes:
        model: The name of the model's file.
        macros: The macros that are defined. A mutant's mistake is the first.
        about: The property that holds, or the mistake, in words.
        expected: `HOLDS`, or the error that the mistake must cause.
        live: Whether to prove that every fair run ends. Otherwise the absence of the other errors is proven.
    """

    model: str
    macros: tuple[str, ...]
    about: str
    expected: str = HOLDS
    live: bool = False

    @property
    def name(self) -> str:
        return " ".join([self.model, *self.macros, *(["ends"] if self.live and self.expected == HOLDS else [])])

    @property
    def defines(self) -> list[str]:
        return [f"-D{macro}" for macro in self.macros]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case. `verdict`: `HOLDS`, the name of an error, or the reason why there is no answer."""

    verdict: str
    states: int
    seconds: float


ONE_AT_A_TIME = ("MAX_RUNNING=1",)

HONEST = (
    Case("ring", (), "whole records, each once, in order, whenever the producer dies"),
    Case("doorbell", (), "no wake-up is lost"),
    Case("doorbell", (), "every wait ends", live=True),
    Case("ringer", (), "a waiter for one bit and a waiter for all bits both receive what is published"),
    Case("turn", ("PARTS", "SLOW"), "two callers, and one has results only after the other"),
    Case("turn", ("PARTS", "CLOSES"), "two callers, and a handler closes the pool"),
    Case("turn", ("PARTS", "RAISES"), "two callers, and a signal handler raises"),
    Case("turn", ("FAULTS", "LOGGERS=2", "CALLS"), "log handlers that call the pool"),
    Case("turn", ("PARTS", "FAULTS", "LOCKS"), "two callers, and log handlers that take a lock of one of them"),
    Case("turn", ("FAULTS", "LOGGERS=1", "CLOSES"), "log handlers that close the pool"),
    Case("turn", ("PARTS",), "two callers, and it ends", live=True),
    Case("turn", ("FAULTS", "LOGGERS=1", "LOCKS"), "faults are raised and logged, and it ends", live=True),
    Case("conversation", (), "both workers at once, three envs"),
    Case("conversation", ("ROUNDS=2", "ONE_EACH"), "both at once, two rounds"),
    Case("conversation", ("ROUNDS=2", "ONE_EACH", *ONE_AT_A_TIME), "in turns, two rounds"),
    Case("conversation", ("ONE_EACH", "FAILS"), "an env raises"),
    Case("conversation", ("ONE_EACH", "RESTARTS"), "a dead worker has a successor"),
    Case("conversation", ("ONE_EACH", *ONE_AT_A_TIME), "in turns, and it ends", live=True),
    Case("conversation", ("ABANDON",), "workers are stopped unasked"),
    Case("conversation", ("KEEPS", "ONE_EACH"), "workers ring when they are through"),
)
THOROUGH = (
    Case("turn", ("PARTS", "CLOSES", "RAISES"), "signal handlers close and raise"),
    Case("turn", ("FAULTS", "LOGGERS=2", "LOCKS"), "two threads emit, and log handlers take the caller's lock"),
    Case("conversation", ("KEEPS",), "workers ring when they are through, three envs"),
    Case("conversation", ("ONE_EACH", "FAILS", "RESTARTS"), "an env raises, and a dead worker has a successor"),
    Case("conversation", ("ROUNDS=2", *ONE_AT_A_TIME), "in turns, two rounds, three envs"),
    Case("conversation", ("ONE_EACH",), "both at once, and it ends", live=True),
    Case(
        "conversation",
        ("ONE_EACH", "RESTARTS", *ONE_AT_A_TIME),
        "a dead worker has a successor, and it ends",
        live=True,
    ),
    Case("conversation", ("ONE_EACH", "EARLY"), "waits of the pool return early"),
)


def _mutants(model: str, *rows: tuple[str, str, str], size: tuple[str, ...] = (), live: bool = False) -> list[Case]:
    return [Case(model, (macro, *size), mistake, expected, live) for macro, expected, mistake in rows]


MUTANTS = (
    *_mutants(
        "ring",
        ("CAPACITY_OFF_BY_ONE", ASSERTION, "one record more than there is room for"),
        ("PUBLISH_FIRST", ASSERTION, "published before the record is written"),
        ("RELAXED_PUBLISH", ASSERTION, "written first, but the counter may overtake the record"),
        ("JOIN_PUBLISHED", ASSERTION, "a run is lengthened that is published already"),
        ("READ_EARLY", ASSERTION, "the record may be read before the counter"),
        ("CONSUME_FIRST", ASSERTION, "given back before it is read"),
    ),
    *_mutants(
        "doorbell",
        ("CHECK_FIRST", STUCK, "the waiter looks at the count, then says that it sleeps"),
        ("LOOK_FIRST", STUCK, "the ringer looks for a sleeper, then counts"),
        ("NOT_SEQ_CST", STUCK, "`sleeping` may still be on its way when the count is read"),
        ("NO_COMPARE", STUCK, "falls asleep whatever the count is by then"),
        ("TARGET_LATE", STUCK, "`target` is stored after `sleeping`"),
        ("TOO_HIGH", STUCK, "wakes at one more than the target"),
    ),
    *_mutants(
        "ringer",
        ("LOOKS_ONCE", ASSERTION, "a waiter that no longer waits for all bits does not look at the stored ones"),
        ("RINGER_UNFENCED", ASSERTION, "what was published may be on its way when `wants_all` is read"),
        ("WAITER_UNFENCED", ASSERTION, "`wants_all` may be on its way when the rings are looked at"),
        ("KEPT_AT_THE_END", ASSERTION, "a ringer that is through keeps its count"),
    ),
    *_mutants(
        "turn",
        ("FOLLOWS_LATE", STUCK, "a thread looks for one that sleeps on the bell, then counts itself as its follower"),
        ("NEWS_FIRST", STUCK, "the thread that slept on the bell announces that before it is so"),
        size=("PARTS",),
    ),
    *_mutants(
        "turn",
        ("LEADER_UNWOKEN", STUCK, "a follower does not wake the thread that sleeps for many results"),
        size=("PARTS", "SLOW"),
    ),
    *_mutants(
        "turn",
        ("WAITERS_FIRST", STUCK, "a thread looks for waiters, then gives up the turn"),
        ("COUNTED_LATE", STUCK, "a thread looks at the turn, then counts itself as a waiter"),
        ("DECISION_UNHEARD", STUCK, "a decision wakes no caller"),
        ("ROW_FIRST", ASSERTION, "a row is taken before its record is emitted"),
        size=("FAULTS",),
    ),
    *_mutants(
        "turn",
        (
            "URGENT_KEPT",
            ENDLESS,
            "a caller waits again, but raises no urgent error, and never gives up the turn",
        ),
        size=("FAULTS",),
        live=True,
    ),
    *_mutants(
        "turn",
        ("LOGS_INSIDE", STUCK, "a thread that has the turn emits records"),
        ("SEEN_FIRST", ASSERTION, "a thread says that records are emitted, then emits them"),
        size=("PARTS", "FAULTS", "LOCKS"),
    ),
    *_mutants(
        "turn",
        ("SUPERVISOR_LOGS", STUCK, "the supervisor emits records"),
        ("NO_PATIENCE_ENDS", STUCK, "a caller waits for log handlers of another thread"),
        ("JOINS_LOGGER", STUCK, "a close waits for the thread that emits records"),
        size=("FAULTS", "LOCKS", "LOGGERS=1", "CLOSES"),
    ),
    *_mutants(
        "turn",
        ("IMPATIENT", ASSERTION, "a caller leaves a record to a thread that has emitted its last one"),
        size=("FAULTS", "LOGGERS=1"),
    ),
    *_mutants(
        "turn",
        ("LOGGER_UNGUARDED", ASSERTION, "a thread is the log thread although another one emits"),
        size=("FAULTS", "LOGGERS=2", "CALLS"),
    ),
    *_mutants(
        "turn",
        ("JOINS_INSIDE", STUCK, "a close keeps the turn while it waits for the end of the supervisor"),
        ("WAITS_IN_CALL", STUCK, "a handler waits for the close that its call puts off"),
        ("SUPERVISOR_CLOSES", STUCK, "the supervisor waits for its own end"),
        size=("FAULTS", "CLOSES"),
    ),
    *_mutants(
        "turn",
        ("REFUSES_LATE", ASSERTION, "a call begins after a close has found none"),
        size=("PARTS", "CLOSES"),
    ),
    *_mutants(
        "turn",
        ("WITHDRAW_FORGETS", ASSERTION, "a call that ends while it waits for the turn does not run the close"),
        size=("PARTS", "CLOSES", "RAISES"),
    ),
    *_mutants(
        "conversation",
        ("POOL_RINGS_FIRST", STUCK, "the pool rings, then publishes"),
        ("WORKER_RINGS_FIRST", STUCK, "a worker rings, then publishes"),
        ("HUB_HEARS_LATE", STUCK, "the pool reads the count after the rings"),
        ("WORKER_HEARS_LATE", STUCK, "a worker reads the count after its ring"),
        ("NEEDS_ONE_MORE", STUCK, "the pool asks for one more than will come"),
        ("TURN_KEPT", STUCK, "a dead worker's turn does not end"),
        ("TURNS_UNHEARD", STUCK, "no process is notified of the end of a turn"),
        ("DEATH_UNSEEN", STUCK, "the supervisor does not wait for the ends of processes"),
        ("DECISION_UNHEARD", STUCK, "a decision does not wake the caller"),
        ("CLEAR_LATE", STUCK, "the supervisor decides, then clears its wake-up"),
        ("DRAIN_FIRST", ASSERTION, "the supervisor reads the rings, then looks for ended processes"),
        ("CLOSE_UNDRAINED", ASSERTION, "the pool does not wait for the last answers"),
        ("FAREWELL_UNPUBLISHED", ASSERTION, "a worker ends before its last answer is published"),
        size=ONE_AT_A_TIME,
    ),
    *_mutants(
        "conversation",
        ("SEND_BUSY", ASSERTION, "a command to an env that has one"),
        ("DEAD_UNREPORTED", STUCK, "no process is notified of a command to a dead worker"),
        size=("ROUNDS=2", "ONE_EACH"),
    ),
    *_mutants(
        "conversation",
        ("EVENT_UNSEEN", STUCK, "a caller that accepts a failure does not wake the supervisor"),
        size=("ONE_EACH", "FAILS"),
    ),
    *_mutants(
        "conversation",
        ("END_FIRST", ASSERTION, "a worker's end is decided before its earlier messages, so it is reported twice"),
        size=("ONE_EACH", "FAILS", "RESTARTS", *ONE_AT_A_TIME),
    ),
    *_mutants(
        "conversation",
        ("THROUGH_UNRUNG", STUCK, "a worker that has nothing left to do keeps its count"),
        size=("KEEPS", *ONE_AT_A_TIME),
    ),
    *_mutants(
        "conversation",
        ("STOP_UNSEEN", STUCK, "told to stop, a worker looks at its ring only, and sleeps"),
        size=("ABANDON",),
    ),
)


# -- Spin --------------------------------------------------------------------------------------------------------------


def verify(case: Case, folder: Path) -> Outcome:
    """Runs Spin on a case. `folder` must be empty, and has the counterexample afterwards."""
    start = time.monotonic()
    try:
        _build(case, folder)
        output = _run(["./pan", f"-m{DEPTH}", *(["-a", "-f"] if case.live else [])], folder)
    except subprocess.TimeoutExpired:
        return Outcome(f"no answer in {SECONDS} s", 0, time.monotonic() - start)
    except subprocess.CalledProcessError as error:
        return Outcome(f"{error.cmd[0]} failed: {error.output.strip()}", 0, time.monotonic() - start)
    states = re.search(r"(\d+) states, stored", output)
    return Outcome(_verdict(case, output), int(states[1]) if states else 0, time.monotonic() - start)


def _build(case: Case, folder: Path) -> None:
    for model in HERE.glob("*.pml"):
        shutil.copy2(model, folder)  # Spin writes its files into the folder of the model
    _run(["spin", "-a", *case.defines, f"{case.model}.pml"], folder)
    flags = ["-DNFAIR=3"] if case.live else ["-DSAFETY", "-DNOCLAIM"]
    if case.expected != HOLDS and not case.live:
        flags.append("-DBFS")  # finds the shortest counterexample
    flags += ["-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}", "-w"]
    _run([_compiler(), *flags, "-o", "pan", "pan.c"], folder)


def _compiler() -> str:
    return os.environ.get("CC", "cc")


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout


def _verdict(case: Case, output: str) -> str:
    if error := re.search(rf"^pan:1: ({ASSERTION}|{STUCK}|{ENDLESS})", output, re.MULTILINE):
        return error[1]
    if "errors: 0" not in output or "not completed" in output or "too small" in output:
        return f"no answer: {output.strip().splitlines()[0]}"
    if not case.live and (unreached := _unreached(output)):
        return f"holds, but never gets to {unreached[0]}"
    return HOLDS


def _unreached(output: str) -> list[str]:
    """Returns the statements that no run of a model reaches.

    Skips processes with inlined code that stands in many places and is superfluous in some of them.
    """
    process, statements = "", []
    for line in output.splitlines():
        if section := re.match(r"unreached in (.*)", line):
            process = section[1]
        elif (statement := re.match(r"\t(.*:\d+), state \d+, (\".*\")$", line)) and statement[2] != '"-end-"':
            statements += [f"{statement[1]}, {statement[2]}"] if process not in INLINED else []
    return statements


# -- output ------------------------------------------------------------------------------------------------------------


def check(cases: Sequence[Case], jobs: int) -> bool:
    """Verifies `cases` and prints a table. Returns whether all outcomes are the expected ones."""
    print(f"{'':10} {'states':>10} {'seconds':>8}  {'model':13} what")
    surprises = 0
    with tempfile.TemporaryDirectory(prefix="remuda-formal-") as root, ThreadPoolExecutor(jobs) as executor:
        folders = [Path(root, str(i)) for i in range(len(cases))]
        for folder in folders:
            folder.mkdir()
        for case, outcome in zip(cases, executor.map(verify, cases, folders), strict=True):
            surprises += outcome.verdict != case.expected
            print(_row(case, outcome), flush=True)
    print(f"{len(cases)} as expected" if not surprises else f"{surprises} of {len(cases)} NOT as expected")
    return not surprises


def _row(case: Case, outcome: Outcome) -> str:
    as_expected = "holds" if case.expected == HOLDS else "caught"
    surprise = outcome.verdict != case.expected
    what = case.about if case.expected == HOLDS else f"{case.macros[0]}: {case.about}"
    word = "SURPRISE" if surprise else as_expected
    row = f"{word:10} {outcome.states:10,} {outcome.seconds:8.1f}  {case.model:13} {what}"
    return f"{row}\n{'':10} expected: {case.expected}, got: {outcome.verdict}" if surprise else row


def show(case: Case) -> bool:
    """Prints the counterexample of a case. Returns False if there is none."""
    with tempfile.TemporaryDirectory(prefix="remuda-formal-") as root:
        folder = Path(root)
        outcome = verify(case, folder)
        if not (folder / f"{case.model}.pml.trail").exists():
            print(f"{case.name}: {outcome.verdict}; there is nothing to show")
            return False
        # Spin prints all steps, with the variables that they change.
        print(_run(["spin", "-t", "-p", "-g", "-l", *case.defines, f"{case.model}.pml"], folder))
    print(f"{case.name}: {outcome.verdict}: {case.about}")
    return True


# -- the command -------------------------------------------------------------------------------------------------------


def _selected(cases: Iterable[Case], names: Sequence[str]) -> list[Case]:
    return [case for case in cases if not names or any(name in case.name for name in names)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the models of the core's protocol with Spin.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only cases that have one of these in their name")
    parser.add_argument("--thorough", action="store_true", help="also what takes a minute more and 1 GB")
    parser.add_argument("--show", action="store_true", help="print the counterexample of the first case selected")
    parser.add_argument("--jobs", type=int, default=min(4, _cores()), help="how many at once (default: %(default)s)")
    args = parser.parse_args()
    for tool in ("spin", _compiler()):
        if shutil.which(tool) is None:
            print(f"expected {tool} on PATH, found none; on Debian: apt-get install spin gcc", file=sys.stderr)
            return 2
    cases = _selected([*HONEST, *(THOROUGH if args.thorough else ()), *MUTANTS], args.names)
    if not cases:
        print(f"expected the names of models or mistakes, got {' '.join(args.names)}", file=sys.stderr)
        return 2
    return 0 if (show(cases[0]) if args.show else check(cases, max(1, args.jobs))) else 1


if __name__ == "__main__":
    sys.exit(main())
