"""The entries of the table of options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda._engine.options.checks import Check


@dataclass(frozen=True)
class Option:
    """One option of a pool.

    Attributes:
        default: The value if the option is not given, in the form in which a caller would write it.
        check: Converts the given value into the value in force. Raises TypeError or ValueError.
        keeps_processes: With another value than the default, `backend="auto"` means worker processes.
        one_worker_each: With another value than the default, each env gets a worker if `num_workers` is not given.
        needs_one_worker_each: Why, with another value than the default, no two envs may share a worker; None: they may.
        of_processes: Why workers other than processes need the default; None: they support any value.
        not_on_a_cluster: Why a pool on a cluster needs the default; None: it supports any value.
    """

    default: Any
    check: Check
    keeps_processes: bool = False
    one_worker_each: bool = False
    needs_one_worker_each: str | None = None
    of_processes: str | None = None
    not_on_a_cluster: str | None = None

    @property
    def in_force(self) -> Any:
        """The value in force if the option is not given."""
        return self.check("", self.default)


def option(default: Any, check: Check = lambda _, given: given, **needs: Any) -> Any:
    """Returns a dataclass field for an option's value in force. `needs`: further attributes of its `Option`."""
    entry = Option(default, check, **needs)
    return field(default=entry.in_force, metadata={"option": entry})
