"""Runs Spin over the models: what is as in the core must hold, and every mistake we can think of must be caught.

    python formal/check.py                    all of it, in about a minute
    python formal/check.py doorbell SEND      only what has one of these in its name
    python formal/check.py --thorough         and larger sizes: two minutes more, 1.5 GB
    python formal/check.py --show LOOK_FIRST  how this mistake leads to its end, step by step

Fails if anything comes out otherwise than expected: a mistake that is not caught, or that is caught for another reason
than the one it was made for, is as bad as a fault in what should hold.
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
# What Spin calls its errors, and what they are here.
ASSERTION = "assertion violated"
STUCK = "invalid end state"  # somebody sleeps for ever
ENDLESS = "acceptance cycle"  # all are busy, and it comes to nothing

MEMORY_MB = 2500  # of one verifier, at most
DEPTH = 100_000
SECONDS = 600


@dataclass(frozen=True)
class Case:
    """One verification.

    Attributes:
        model: Whose file it is.
        macros: What it is built with; a mutant's mistake comes first.
        about: What holds, or the mistake in words.
        expected: `HOLDS`, or how the mistake must show.
        live: Whether to prove that it ends, given that everybody who can go on does; else that nothing goes wrong.
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
    """What came of a case: `HOLDS`, an error of Spin's, or why there is no answer."""

    verdict: str
    states: int
    seconds: float


ONE_AT_A_TIME = ("MAX_RUNNING=1",)

HONEST = (
    Case("ring", (), "whole records, each once, in order, whenever the producer dies"),
    Case("doorbell", (), "no wake-up is lost"),
    Case("doorbell", (), "every wait ends", live=True),
    Case("ringer", (), "what is published is heard of by who wants each bit, and by who wants all at the end"),
    Case("conversation", (), "both workers at once, three envs"),
    Case("conversation", ("ROUNDS=2", "ONE_EACH"), "both at once, two rounds"),
    Case("conversation", ("ROUNDS=2", "ONE_EACH", *ONE_AT_A_TIME), "in turns, two rounds"),
    Case("conversation", ("ONE_EACH",), "both at once, and it ends", live=True),
    Case("conversation", ("ONE_EACH", *ONE_AT_A_TIME), "in turns, and it ends", live=True),
    Case("conversation", ("ABANDON",), "workers are stopped unasked"),
    Case("conversation", ("KEEPS",), "workers ring when they are through, three envs"),
)
THOROUGH = (
    Case("conversation", ("ROUNDS=2", *ONE_AT_A_TIME), "in turns, two rounds, three envs"),
    Case("conversation", ONE_AT_A_TIME, "in turns, three envs, and it ends", live=True),
    Case("conversation", ("ROUNDS=2",), "both at once, two rounds, three envs"),
    Case("conversation", (), "both at once, three envs, and it ends", live=True),
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
        ("LOOKS_ONCE", ASSERTION, "who no longer wants all does not look at what was kept"),
        ("RINGER_UNFENCED", ASSERTION, "what was published may be on its way when `wants_all` is read"),
        ("WAITER_UNFENCED", ASSERTION, "`wants_all` may be on its way when the rings are looked at"),
        ("KEPT_AT_THE_END", ASSERTION, "a ringer that is through keeps its count"),
    ),
    *_mutants(
        "conversation",
        ("POOL_RINGS_FIRST", STUCK, "the pool rings, then publishes"),
        ("WORKER_RINGS_FIRST", STUCK, "a worker rings, then publishes"),
        ("HUB_HEARS_LATE", STUCK, "the pool reads the count after the rings"),
        ("WORKER_HEARS_LATE", STUCK, "a worker reads the count after its ring"),
        ("NEEDS_ONE_MORE", STUCK, "the pool asks for one more than will come"),
        ("TURN_KEPT", STUCK, "a dead worker's turn does not end"),
        ("TURNS_UNHEARD", STUCK, "nobody hears that a turn has ended"),
        ("POLL_LATE", ASSERTION, "the rings are not looked at again after a death"),
        ("CLOSE_UNDRAINED", ASSERTION, "the pool does not wait for the last answers"),
        ("FAREWELL_UNPUBLISHED", ASSERTION, "a worker ends before its last answer is published"),
        size=ONE_AT_A_TIME,
    ),
    *_mutants(
        "conversation",
        ("SEND_BUSY", ASSERTION, "a command to an env that has one"),
        size=("ROUNDS=2", "ONE_EACH"),
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
    *_mutants(
        "conversation",
        ("UNPOLLED", ENDLESS, "nobody looks for the dead"),
        size=ONE_AT_A_TIME,
        live=True,
    ),
)


# -- Spin --------------------------------------------------------------------------------------------------------------


def verify(case: Case, folder: Path) -> Outcome:
    """Runs a case in a folder of its own, where a counterexample stays."""
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
        shutil.copy2(model, folder)  # Spin leaves what it writes beside the model
    _run(["spin", "-a", *case.defines, f"{case.model}.pml"], folder)
    flags = ["-DNFAIR=3"] if case.live else ["-DSAFETY", "-DNOCLAIM"]
    if case.expected == HOLDS:
        flags.append("-O2")
    elif not case.live:
        flags.append("-DBFS")  # the shortest way into trouble is the one to read
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
    """Statements that a model never comes to, and which might as well not be there.

    Not the Pool's: what is written once stands in it many times, and in some of these places it has nothing to do.
    """
    process, statements = "", []
    for line in output.splitlines():
        if section := re.match(r"unreached in (.*)", line):
            process = section[1]
        elif (statement := re.match(r"\t(.*:\d+), state \d+, (\".*\")$", line)) and statement[2] != '"-end-"':
            statements += [f"{statement[1]}, {statement[2]}"] if process not in {"proctype Pool", "claim ends"} else []
    return statements


# -- what is shown -----------------------------------------------------------------------------------------------------


def check(cases: Sequence[Case], jobs: int) -> bool:
    """Verifies `cases` and prints a table; whether all came out as expected."""
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
    """Prints how a case goes wrong; whether it did."""
    with tempfile.TemporaryDirectory(prefix="remuda-formal-") as root:
        folder = Path(root)
        outcome = verify(case, folder)
        if not (folder / f"{case.model}.pml.trail").exists():
            print(f"{case.name}: {outcome.verdict}; there is nothing to show")
            return False
        # All steps, with the variables that they change.
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
    parser.add_argument("--thorough", action="store_true", help="also what takes two minutes more and 1.5 GB")
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
