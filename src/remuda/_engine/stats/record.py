"""Records of figures. A field has a description, a place in shared memory, and a rule for differences of records."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from remuda._engine.stats.durations import Durations

if TYPE_CHECKING:
    from typing_extensions import Self  # `typing` has it since Python 3.11

_R = TypeVar("_R")


@dataclass(frozen=True)
class Figure:
    """The description of one field of a record."""

    text: str  # the description, for the docstring of the class.
    cells: tuple[str, ...] = ()  # the numbers in shared memory that add up to the figure; () if there are none.
    grows: bool = False  # whether a difference of records subtracts the figure; False: keeps the later value


def described(text: str, *cells: str, grows: bool = False) -> dict[str, Figure]:
    """Returns the metadata for a field of a record. The arguments are those of `Figure`."""
    return {"figure": Figure(" ".join(text.split()), cells, grows)}


def total(default: Any, text: str, *cells: str) -> Any:
    """Returns a field of a record for a figure that a difference of two records subtracts."""
    return field(default=default, metadata=described(text, *cells, grows=True))


def latest(default: Any, text: str, *cells: str) -> Any:
    """Returns a field of a record for a figure that keeps the later value in a difference of two records."""
    return field(default=default, metadata=described(text, *cells))


def figures_of(kind: Any) -> dict[str, Figure]:
    """Returns the `Figure` of each field of a class of records, by the field's name."""
    return {one.name: one.metadata["figure"] for one in fields(kind)}


def documented(kind: type[_R]) -> type[_R]:
    """A decorator for classes of records: appends a list of the class's figures to its docstring."""
    lines = [
        textwrap.fill(f"{name}: {one.text}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for name, one in figures_of(kind).items()
    ]
    kind.__doc__ = "\n".join([f"{kind.__doc__}\n\n    Attributes:", *lines, "    "])
    return kind


@dataclass(frozen=True, eq=False)
class Record:
    """The base class of records of figures. `later - earlier` is a record of the time between two records."""

    @property
    def _age(self) -> float:
        """A number that never decreases: of two records, the one with the larger number is later."""
        return 0.0

    def __sub__(self, earlier: Self) -> Self:
        check_order(earlier._age <= self._age)
        growing = [name for name, figure in figures_of(type(self)).items() if figure.grows]
        return replace(self, **{name: _growth(getattr(self, name), getattr(earlier, name)) for name in growing})


def check_order(is_in_order: bool) -> None:
    if not is_in_order:
        raise ValueError("expected the later snapshot first, got the earlier one; write `later - earlier`")


def _growth(later: Any, earlier: Any) -> Any:
    """Returns the difference of two `Durations`, or of two numbers, which is at least 0."""
    return later - earlier if isinstance(later, Durations) else max(later - earlier, type(later)())
