"""The columns of `extras`, in the place of answers of the envs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from remuda import Batch

_ALIASES = {"action_masks": "action_mask"}  # what sb3-contrib asks for, and what most others call it


class Extras:
    """What the latest reset or step has computed of the envs, and whether that still holds.

    Attributes:
        columns: By name, of the latest reset or step; empty before the first one.
        functions: What computes them, by name.
    """

    def __init__(self, functions: Mapping[str, Callable[[Any], Any]]) -> None:
        self.functions = functions
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self._hold = False

    def note(self, batch: Batch) -> None:
        """The envs have been reset or stepped."""
        self.columns, self._hold = batch.extras, True

    def outdate(self) -> None:
        """The envs are asked for something that may change what is computed of them."""
        self._hold = False

    def let_go(self) -> None:
        """Hold no shared memory any more."""
        self.columns = {name: column.copy() for name, column in self.columns.items()}

    def name_of(self, asked: str) -> str | None:
        """The column that answers a question for this attribute or method; None: there is none."""
        return next((name for name in (asked, _ALIASES.get(asked)) if name in self.functions), None)

    def rows(self, name: str, envs: Sequence[int]) -> list[Any] | None:
        """Copies of the rows of these envs; None where they may be out of date."""
        if not self._hold:
            return None
        return [self.columns[name][env].copy() for env in envs]
