"""The space of orders."""

from __future__ import annotations

from typing import Any

from gymnasium import Space


class Anything(Space[Any]):
    """Whatever can be pickled: what an env may be told is ML-Agents' affair."""

    def __init__(self) -> None:
        super().__init__(shape=None, dtype=None)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raise ``NotImplementedError``: an order is not drawn at random."""
        raise NotImplementedError("expected nobody to sample orders: behaviours have action specs")

    def contains(self, x: Any) -> bool:
        return True

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    def __hash__(self) -> int:
        return hash(Anything)

    def __repr__(self) -> str:
        return "Anything()"
