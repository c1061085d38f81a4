"""The pool's option `extras`, whose columns replace answers of the envs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from remuda import Batch

_ALIASES = {"action_masks": "action_mask"}  # what sb3-contrib asks for, and what most others call it


class Extras:
    """The columns of the latest reset or step, which hold until anything else is sent to the envs.

    Attributes:
        columns: By name, of the latest reset or step; empty before the first one.
        functions: What computes them, by name.
    """

    def __init__(self, functions: Mapping[str, Callable[[Any], Any]]) -> None:
        self.functions = functions
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self._last_sent = 0

    def note(self, batch: Batch, last_sent: int) -> None:
        """Takes the columns of a reset or step. `last_sent`: as `Part.last_sent` is now."""
        self.columns, self._last_sent = batch.extras, last_sent

    def let_go(self) -> None:
        """Hold no shared memory any more."""
        self.columns = {name: column.copy() for name, column in self.columns.items()}

    def name_of(self, asked: str) -> str | None:
        """The column that answers a question for this attribute or method; None: there is none."""
        return next((name for name in (asked, _ALIASES.get(asked)) if name in self.functions), None)

    def rows(self, name: str, envs: Sequence[int], last_sent: int) -> list[Any] | None:
        """Returns copies of the rows of these envs; None if they may be out of date."""
        if last_sent != self._last_sent or not self.columns:
            return None
        return [self.columns[name][env].copy() for env in envs]


def functions_of(extras: Any) -> dict[str, Callable[[Any], Any]]:
    """Returns the functions of the option `extras` by name. Anything else is left for the pool to refuse."""
    if not isinstance(extras, Mapping):
        return {}
    given = {name: one[0] if _is_declared(one) else one for name, one in extras.items()}
    return {name: one for name, one in given.items() if callable(one)}


def with_functions(extras: Any, functions: Mapping[str, Callable[[Any], Any]]) -> Any:
    """Returns the option `extras` with other functions under the names that it has."""
    if not isinstance(extras, Mapping):
        return extras
    return {
        name: one if name not in functions else (functions[name], one[1]) if _is_declared(one) else functions[name]
        for name, one in extras.items()
    }


def _is_declared(one: Any) -> bool:
    return isinstance(one, tuple) and len(one) == 2
