"""Refuses `pool` for faces whose envs are not stepped in rows."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from remuda._faces.stats import HasStats


class HasNoPool(HasStats):
    """Gives `stats` and a refusal of `pool` to a face whose envs are not stepped in rows that a learner reads.

    Attributes:
        _why_no_pool: The reason.
    """

    _why_no_pool: ClassVar[str]

    @property
    def pool(self) -> NoReturn:
        """Not available here.

        Raises:
            NotImplementedError: Always; says why.
        """
        raise NotImplementedError(
            "expected remuda.gymnasium, remuda.sb3 or a remuda.Pool for rollouts, states, replace and remuda.evaluate, "
            f"got a {type(self).__name__}: {self._why_no_pool}"
        )
