"""The outcome of every accident in every phase, as one table for the tests and for docs/faults.md.

`python tests/crash_matrix.py` writes the tables into that document. A test fails if they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal, TypeAlias

import accidents
from accidents import Accident
from doc_pages import filled, table

DOCUMENT = Path(__file__).parents[1] / "docs" / "faults.md"

Policy: TypeAlias = Literal["raise", "restart"]
Kind: TypeAlias = Literal["death", "exception", "hang"]


@dataclass(frozen=True)
class Row:
    """An accident of an env.

    Attributes:
        name: Its name in the document.
        act: The function that the env calls.
        kind: The kind of fault that the pool reports.
        says: A part of the error's text.
        shown: Whether the document has it.
    """

    name: str
    act: Accident
    kind: Kind
    says: str
    shown: bool = True


ROWS = (
    Row("SIGKILL (`kill -9`, the kernel out of memory)", accidents.kill_myself, "death", "killed by SIGKILL"),
    Row("SIGSEGV (a null pointer)", accidents.segfault, "death", "killed by SIGSEGV"),
    Row("`abort()`", accidents.abort, "death", "killed by SIGABRT"),
    Row("`os._exit(3)`", accidents.leave, "death", "it exited with code 3"),
    Row("a write to NULL", accidents.write_where_malloc_failed, "death", "killed by SIGSEGV", shown=False),
    Row("an exception", accidents.raise_value_error, "exception", "raised ValueError in"),
    Row(
        "an exception that cannot be pickled",
        accidents.raise_unpicklable,
        "exception",
        "raised odd_exceptions.Unpicklable in",
    ),
    Row(
        "an exception that cannot be unpickled",
        accidents.raise_needs_arguments,
        "exception",
        "raised odd_exceptions.NeedsArguments in",
    ),
    Row("`sys.exit(3)`", accidents.exit_python, "exception", "raised SystemExit in"),
    Row("memory beyond `RLIMIT_AS`, in Python", accidents.run_out_of_memory, "exception", "raised MemoryError in"),
    Row("SIGSTOP", accidents.stop_myself, "hang", "it took longer than"),
    Row("an endless loop in Python", accidents.loop_for_ever, "hang", "it took longer than"),
    Row("native code that never returns and holds the GIL", accidents.hold_the_gil, "hang", "it took longer than"),
)


class Phase(Enum):
    """The phase of the accident. The value is the heading in the document."""

    BUILD = "build"
    REBUILD = "rebuild"
    REBUILD_IN_PLACE = "rebuild in place"
    RESET = "reset"
    STEP = "step"
    AUTORESET = "autoreset"
    SAME_STEP = "same-step autoreset"
    CALL = "call"
    RENDER = "render"
    CLOSE = "close"


class Outcome(Enum):
    """The outcome of an accident. The value is the text in the document."""

    DIED = "`WorkerDiedError`"
    RAISED = "`EnvError`"
    LATE = "`EnvTimeoutError`"
    NOT_BUILT = "`StartTimeoutError`"
    BUILT_AGAIN = "built again"
    REPEATED = "repeated"
    TRUNCATED = "truncated"
    TRUNCATED_LATER_DIED = "`WorkerDiedError`, then truncated"
    TRUNCATED_LATER_LATE = "`EnvTimeoutError`, then truncated"
    EPISODE_GOES_ON = "`EnvError`, the episode continues"
    KILLED = "killed after `timeout`, no error"
    NEVER = "-"


_CALLS = (Phase.CALL, Phase.RENDER)
_NO_REBUILD = dict.fromkeys((Phase.REBUILD, Phase.REBUILD_IN_PLACE), Outcome.NEVER)
_HANGS = {Phase.BUILD: Outcome.NOT_BUILT, Phase.CLOSE: Outcome.KILLED}
_RESTARTED = {
    **dict.fromkeys((Phase.REBUILD, Phase.REBUILD_IN_PLACE), Outcome.BUILT_AGAIN),
    **dict.fromkeys((Phase.RESET, Phase.AUTORESET), Outcome.REPEATED),
    **dict.fromkeys((Phase.STEP, Phase.SAME_STEP), Outcome.TRUNCATED),
}

OUTCOMES: dict[Policy, dict[Kind, dict[Phase, Outcome]]] = {
    "raise": {
        "death": {**dict.fromkeys(Phase, Outcome.DIED), **_NO_REBUILD},
        "exception": {**dict.fromkeys(Phase, Outcome.RAISED), **_NO_REBUILD},
        "hang": {**dict.fromkeys(Phase, Outcome.LATE), **_HANGS, **_NO_REBUILD},
    },
    "restart": {
        "death": {
            **dict.fromkeys(Phase, Outcome.DIED),
            **_RESTARTED,
            **dict.fromkeys(_CALLS, Outcome.TRUNCATED_LATER_DIED),
        },
        "exception": {
            **dict.fromkeys(Phase, Outcome.RAISED),
            **_RESTARTED,
            **dict.fromkeys(_CALLS, Outcome.EPISODE_GOES_ON),
        },
        "hang": {**_HANGS, **_RESTARTED, **dict.fromkeys(_CALLS, Outcome.TRUNCATED_LATER_LATE)},
    },
}


# -- for the document ------------------------------------------------------------------------------------

_KINDS: dict[Kind, str] = {"death": "the worker dies", "exception": "an exception", "hang": "a hang"}


def tables() -> dict[str, str]:
    """Returns the tables by the name of their place in the document."""
    shown = {kind: [row.name for row in ROWS if row.kind == kind and row.shown] for kind in _KINDS}
    accidents_by_kind = [[text, "; ".join(shown[kind])] for kind, text in _KINDS.items()]
    return {
        "accidents": table(["counts as", "what happens to an env"], accidents_by_kind),
        **{f"matrix {policy}": _matrix(policy) for policy in OUTCOMES},
    }


def _matrix(policy: Policy) -> str:
    """Returns the table of a policy, with a line for all phases that have the same outcomes."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for phase in Phase:
        if set(_across(policy, phase)) != {Outcome.NEVER}:
            lines.setdefault(tuple(outcome.value for outcome in _across(policy, phase)), []).append(phase.value)
    return table(["during", *_KINDS.values()], [[", ".join(names), *cells] for cells, names in lines.items()])


def _across(policy: Policy, phase: Phase) -> list[Outcome]:
    return [OUTCOMES[policy][kind][phase] for kind in _KINDS]


def with_tables(text: str) -> str:
    """Returns the document with its current tables."""
    return filled(text, tables())


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text()))
