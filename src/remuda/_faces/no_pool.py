"""The base of faces that do not give users access to their pool."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from remuda._faces.stats import HasStats


class HasNoPool(HasStats):
    """The base of faces that do not give users access to their pool: `stats` works, but reading `pool` raises an error.

    Attributes:
        _why_no_pool: The reason.
    """

    _why_no_pool: ClassVar[str]

    @property
    def pool(self) -> NoReturn:
        """Raises an error, because users of the face have no access to its pool.

        Raises:
            NotImplementedError: Always, with the reason.
        """
        raise NotImplementedError(
            "expected remuda.gymnasium, remuda.sb3 or a remuda.Pool for rollouts, states, replace and remuda.evaluate, "
            f"got a {type(self).__name__}: {self._why_no_pool}"
        )
