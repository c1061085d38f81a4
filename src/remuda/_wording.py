"""Texts for messages: values in brief, lists of envs and workers, exit codes of processes."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from typing import Any

_LONGEST = 120  # characters of a value in a message


def in_brief(value: Any, shape: tuple[int, ...] | None = None) -> str:
    """Returns a value as a short text. That of a list or tuple has its length: "list of 3: [0, 1, 2]".

    `shape`: the shape of the value as an array, which replaces the length; None if it has none.
    """
    text = repr(value)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    if not isinstance(value, (list, tuple)) or not value:
        return text
    size = f"of {len(value)}" if shape is None else f"of shape {shape}"
    return f"{type(value).__name__} {size}: {text}"


def listed(numbers: Sequence[int]) -> str:
    """Returns numbers as text, such as "0, 2, 5"; "none" if there are no numbers."""
    return ", ".join(map(str, numbers)) or "none"


def name_some(what: str, numbers: Iterable[int]) -> str:
    """Returns a noun and its sorted numbers as text, such as "env 3", "envs 0, 2" or "envs 0-63, 65"."""
    runs: list[list[int]] = []
    for number in (ordered := sorted(set(numbers))):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else listed(run) for run in runs]
    return f"{what}{'s' * (len(ordered) != 1)} {', '.join(texts) or 'none'}"


def describe_exitcode(exitcode: int | None) -> str:
    """Describes an exit code, with the likely cause of the usual signals."""
    if exitcode is None:
        return "its exit code is unknown"
    if exitcode >= 0:
        return f"it exited with code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"killed by {name}{_LIKELY_CAUSES.get(name, '')}"


_LIKELY_CAUSES = {
    "SIGKILL": " (often the kernel, out of memory: see `dmesg`; or a `kill -9`)",
    "SIGSEGV": " (native code of the env touched memory that is not its own)",
    "SIGABRT": " (native code of the env gave up: an assertion, or an uncaught C++ exception)",
    "SIGBUS": " (memory-mapped data of the env went away, or its disk is full)",
    "SIGTERM": " (a request to end)",
}
