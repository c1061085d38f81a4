"""What an entry of the table of options is made of, and the checks that several entries share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[str, Any], Any]
"""Gets the name of an option and the value that was given; returns the value in force, or raises."""


@dataclass(frozen=True)
class Option:
    """One option of a pool.

    Attributes:
        default: What holds when it is not given, in the form in which a caller would write it.
        text: What it means, for its users.
        check: Turns what was given into the value in force. Raises TypeError or ValueError.
        keeps_processes: With another value than the default, `backend="auto"` means worker processes.
        one_worker_each: With another value than the default, each env gets a worker where `num_workers` is not given.
        needs_one_worker_each: Why, with another value than the default, no two envs may share a worker; None: they may.
        of_processes: Why other workers than processes take the default alone; None: they take any value.
        not_on_a_cluster: Why a pool on a cluster takes the default alone; None: it takes any value.
    """

    default: Any
    text: str
    check: Check
    keeps_processes: bool = False
    one_worker_each: bool = False
    needs_one_worker_each: str | None = None
    of_processes: str | None = None
    not_on_a_cluster: str | None = None

    def is_default(self, given: Any) -> bool:
        """Whether a value is the default, and of its type."""
        return type(given) is type(self.default) and bool(given == self.default)


def option(default: Any, check: Check, text: str, **needs: Any) -> Any:
    """A field of a dataclass that holds an option's value in force. `needs`: the other attributes of `Option`."""
    entry = Option(default, " ".join(text.split()), check, **needs)
    return field(default=check("", default), metadata={"option": entry})


def options_of(kind: Any) -> dict[str, Option]:
    """The entries of such a dataclass, by name."""
    return {one.name: one.metadata["option"] for one in fields(kind)}


def documentation(options: Mapping[str, Option], sections: Mapping[str, str]) -> str:
    """The text on all options, for a docstring. `sections`: the head of each, by the name of its first option."""
    lines = []
    for name, one in options.items():
        if name in sections:
            lines += ["", f"    {sections[name]}:"]
        default = json.dumps(one.default) if isinstance(one.default, str) else repr(one.default)
        text = f"{name} ({default}): {one.text}"
        lines += textwrap.wrap(
            text,
            120,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join([*lines, "    "])


# -- checks --------------------------------------------------------------------------------------------


def any_value(_: str, given: Any) -> Any:
    return given


def value_of(convert: Callable[[Any], Any]) -> Check:
    """`convert` checks what was given and returns what it means."""
    return lambda _, given: convert(given)


def checked_by(check: Callable[[Any], object]) -> Check:
    """`check` raises for what cannot be."""

    def checked(_: str, given: Any) -> Any:
        check(given)
        return given

    return checked


def or_else(meaning: str) -> Check:
    """None stands for `meaning`."""
    return lambda _, given: given or meaning


def true_or_false(name: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"expected {name} to be True or False, got {given!r}")
    return given


def int_from(least: int, most: int | None = None, *, or_none: bool = False) -> Check:
    to = "up" if most is None else f"to {most}"

    def check(name: str, given: Any) -> Any:
        if given is None and or_none:
            return None
        if not is_int(given) or given < least or (most is not None and given > most):
            raise ValueError(
                f"expected {name} to be an int from {least} {to}{', or None' if or_none else ''}, got {given!r}"
            )
        return given

    return check


def one_of(*values: str, none: str | None = None) -> Check:
    """`none`: what None stands for, where it may be given."""

    def check(name: str, given: Any) -> Any:
        if given is None and none is not None:
            return none
        if given not in values:
            raise ValueError(f"expected {name} to be one of {values}, got {given!r}")
        return given

    return check


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
