"""Statistics of the pool, whose verdict suggests code for the face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from remuda import Setup, StateError

if TYPE_CHECKING:
    from remuda import Pool, PoolStats

_SET_BY_FACES = {"name", "operation_of"}  # and nothing depends on them


@dataclass(frozen=True)
class SuggestedCode:
    """The code for a face that a verdict suggests: `make` and so on of :class:`remuda.Setup`.

    Attributes:
        make, spare, split, partial, slim: Those of them that differ from the pool's; None: none does.
        refused: The options of the pool that the face does not take under their names.
        renamed: The name that the face has for some of these, and its values, as code, by the pool's.
    """

    make: str
    spare: str
    split: str | None = None
    partial: str | None = None
    slim: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    def put_into(self, setup: Setup) -> Setup:
        """Returns the setup with this code. What the pool has no code for, the face has none for."""
        own = {name: getattr(self, name) for name in ("make", "spare", "split", "partial", "slim")}
        words = {name: word for name, word in own.items() if word is not None and getattr(setup, name)}
        options = [self._renamed(name, code) for name, code in setup.options if self._takes(name)]
        return replace(setup, options=tuple(options), **words)

    def _takes(self, option: str) -> bool:
        return option in self.renamed or not (option in self.refused or option in _SET_BY_FACES)

    def _renamed(self, option: str, code: str) -> tuple[str, str]:
        name, values = self.renamed.get(option, (option, {}))
        return name, values.get(code, code)


class HasStats:
    """What a face gets `stats` from.

    Attributes:
        _suggested_code: The code that a verdict suggests to the face's users.
    """

    _suggested_code: ClassVar[SuggestedCode]
    _pool: Pool  # a face whose pool lies elsewhere has a `_running_pool` of its own

    @property
    def _running_pool(self) -> Pool | None:
        return self._pool

    def stats(self) -> PoolStats:
        """What the envs, the workers and this program have spent their time on: a snapshot.

        ``later - earlier`` is what was done in between, and ``stats().verdict`` says what holds the throughput back.

        Raises:
            remuda.StateError: Nothing was started yet.
            remuda.ClosedError: It is closed.
        """
        pool = self._running_pool
        if pool is None:
            raise StateError(f"expected a {type(self).__name__} that runs; start it first")
        stats = pool.stats()
        return replace(stats, setup=self._suggested_code.put_into(stats.setup))
