"""Records of figures. Each field has a description, its place in shared memory, and its rule for differences."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from remuda._engine.stats.durations import Durations

if TYPE_CHECKING:
    from typing_extensions import Self  # in `typing` since Python 3.11

_R = TypeVar("_R")


@dataclass(frozen=True)
class Figure:
    """The description of one field of a record."""

    text: str  # for the docstring of its class
    cells: tuple[
        str, ...
    ] = ()  # names of the numbers in shared memory that add up to it; none if it is found otherwise
    grows: bool = False  # whether a difference of two records subtracts it, or else has the later value


def described(text: str, *cells: str, grows: bool = False) -> dict[str, Figure]:
    """Returns the metadata of a dataclass field. The arguments are those of `Figure`."""
    return {"figure": Figure(" ".join(text.split()), cells, grows)}


def total(default: Any, text: str, *cells: str) -> Any:
    """Returns a field that grows."""
    return field(default=default, metadata=described(text, *cells, grows=True))


def latest(default: Any, text: str, *cells: str) -> Any:
    """Returns a field that keeps its later value in a difference."""
    return field(default=default, metadata=described(text, *cells))


def figures_of(kind: Any) -> dict[str, Figure]:
    """Returns the figures of a class of records, by name."""
    return {one.name: one.metadata["figure"] for one in fields(kind)}


def documented(kind: type[_R]) -> type[_R]:
    """Decorates a class of records: appends its figures to its docstring."""
    lines = [
        textwrap.fill(f"{name}: {one.text}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for name, one in figures_of(kind).items()
    ]
    kind.__doc__ = "\n".join([f"{kind.__doc__}\n\n    Attributes:", *lines, "    "])
    return kind


@dataclass(frozen=True, eq=False)
class Record:
    """The base of records. `later - earlier` is a record of what was done in between."""

    @property
    def _age(self) -> float:
        """A number that grows from snapshot to snapshot."""
        return 0.0

    def __sub__(self, earlier: Self) -> Self:
        check_order(earlier._age <= self._age)
        growing = [name for name, figure in figures_of(type(self)).items() if figure.grows]
        return replace(self, **{name: _growth(getattr(self, name), getattr(earlier, name)) for name in growing})


def check_order(is_in_order: bool) -> None:
    if not is_in_order:
        raise ValueError("expected the later snapshot first, got the earlier one; write `later - earlier`")


def _growth(later: Any, earlier: Any) -> Any:
    """Returns the difference of two durations, or of two numbers: at least 0."""
    return later - earlier if isinstance(later, Durations) else max(later - earlier, type(later)())
