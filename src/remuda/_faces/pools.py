"""The pool beneath a face, for what has no place in the surface that the face imitates."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from remuda._faces.stats import HasStats
from remuda.errors import StateError

if TYPE_CHECKING:
    from remuda import Part


class HasPool(HasStats):
    """What a face gets `pool` and `stats` from whose envs are stepped together, row by row."""

    _envs: Part
    _shares: tuple[Part, ...] = ()  # what `split` has divided the envs into

    @property
    def _is_split(self) -> bool:
        return len(self._shares) > 1

    def _check_whole(self) -> None:
        """Raises StateError where the envs are reset and stepped in parts."""
        if self._is_split:
            raise StateError(
                "the vector env has been split: use what the latest split() returned, or make it whole with split(1)"
            )

    def _drop(self) -> None:
        """Drops what is in flight, faults included; not that of parts, which do so themselves."""
        if not self._is_split:
            self._envs.discard()

    def _drop_rest_of_rollout(self) -> None:
        """Before a reset of all envs: a rollout that was left may have envs in flight. Raises as `_check_whole`."""
        self._check_whole()
        if self._envs.pending:
            self._drop()

    @property
    def pool(self) -> Part:
        """The envs as :class:`remuda.Pool` has them, or as :class:`remuda.Part` those of a half.

        It is for what has no place here: states, :func:`remuda.evaluate`, traces. What it does to the envs, they go on
        from, and what it returns comes back from it alone. Close this, and not the pool.
        """
        return self._envs


class KeepsPool(HasStats):
    """What a face gets `stats` and a refusal of `pool` from whose envs are not stepped in rows for a learner to read.

    Attributes:
        _why_no_pool: The reason.
    """

    _why_no_pool: ClassVar[str]

    @property
    def pool(self) -> NoReturn:
        """There is none to be had.

        Raises:
            NotImplementedError: always; says why.
        """
        raise NotImplementedError(
            "expected remuda.gymnasium, remuda.sb3 or a remuda.Pool for rollouts, states, replace and remuda.evaluate, "
            f"got a {type(self).__name__}: {self._why_no_pool}"
        )
