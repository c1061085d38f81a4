"""The parts of a contender that step alternately: its two halves, or the whole contender.

While the policy serves one half, the other half steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from remuda._bench.contenders import Contender


class Part(Protocol):
    """A part of a contender's envs. `obs`, `rewards` and `ends` are as in `Contender`, with a row for each env."""

    obs: Any
    rewards: Any
    ends: Sequence[Any]

    def send(self, actions: Any) -> None:
        """Begins a step with the actions of a policy: an array with a row for each env."""

    def finish(self) -> int:
        """Ends the step that `send` began. Returns the number of env steps."""


class Whole:
    """A contender that cannot step in the background: `finish` makes the whole step."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender

    @property
    def obs(self) -> Any:
        return self._contender.obs

    @property
    def rewards(self) -> Any:
        return self._contender.rewards

    @property
    def ends(self) -> Sequence[Any]:
        return self._contender.ends

    def send(self, actions: Any) -> None:
        self._actions = actions

    def finish(self) -> int:
        return self._contender.step(self._actions)


def parts_of(contender: Contender) -> Sequence[Part]:
    """Returns the halves of a contender that has an attribute ``halves``, else the contender as one part."""
    return getattr(contender, "halves", None) or (Whole(contender),)


def dones(part: Part) -> npt.NDArray[np.bool_]:
    """Returns for each env of a part whether the latest step has ended its episode: (n,) bool."""
    found: npt.NDArray[np.bool_] = np.logical_or.reduce([np.asarray(end, np.bool_) for end in part.ends])
    return found
