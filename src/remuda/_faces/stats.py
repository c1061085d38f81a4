"""Statistics of the pool, with a verdict that suggests code for the face."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

from remuda import Setup, StateError
from remuda._copying import not_copied

if TYPE_CHECKING:
    from remuda import Pool, PoolStats

_SET_BY_FACES = {"name", "operation_of"}  # options that the face sets itself; suggested code omits them


@dataclass(frozen=True)
class SuggestedCode:
    """The code that a verdict suggests to a face's users, in place of the code for a pool in :class:`remuda.Setup`.

    Attributes:
        make, spare, split, partial, slim: The face's code; None: the pool's code; "": no code.
        refused: The options of the pool that the face does not accept under their names.
        renamed: For some of these options the face's name, and a dict of the face's values by the pool's, as code.
    """

    make: str
    spare: str = ""
    split: str | None = ""
    partial: str | None = ""
    slim: str | None = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    @property
    def words(self) -> dict[str, str]:
        """The face's words for options and values, by the pool's, for `in_words_of`."""
        values = {ours: theirs for _, codes in self.renamed.values() for ours, theirs in codes.items()}
        return {
            **{name: theirs for name, (theirs, _) in self.renamed.items()},
            **{ours.replace('"', "'"): theirs.replace('"', "'") for ours, theirs in values.items()},
        }

    def put_into(self, setup: Setup) -> Setup:
        """Returns the setup with the code for the face instead of the code for a pool."""
        own = {name: getattr(self, name) for name in ("make", "spare", "split", "partial", "slim")}
        words = {name: word for name, word in own.items() if word is not None and getattr(setup, name)}
        options = [self._renamed(name, code) for name, code in setup.options if self._takes(name)]
        return replace(setup, options=tuple(options), **words)

    def _takes(self, option: str) -> bool:
        return option in self.renamed or not (option in self.refused or option in _SET_BY_FACES)

    def _renamed(self, option: str, code: str) -> tuple[str, str]:
        name, values = self.renamed.get(option, (option, {}))
        return name, values.get(code, code)


def vector_env_code(name: str, reset: str, step: str, **options: Any) -> SuggestedCode:
    """Returns the code to suggest for a face that is a vector env and can be split.

    Args:
        name: The class, as its users write it.
        reset, step: The variables for the results of `reset` and `step_wait`.
        **options: The attributes `refused` and `renamed`.
    """
    make = f"envs = {name}({{env_fns}}, {{options}})"
    spare = f"envs = {name}(env_fns + env_fns[:1] * {{spares}}, spares={{spares}}, {{options}})"
    split = f"""\
halves = envs.split(2)
for half in halves:
    {reset} = half.reset()
    half.step_async(policy(obs))
while True:
    for half in halves:
        {step} = half.step_wait()
        half.step_async(policy(obs))"""
    return SuggestedCode(make, spare, split, partial=None, slim=None, **options)


class HasStats:
    """The base of faces, which gives them the method `stats`.

    Attributes:
        _suggested_code: The code that a verdict suggests to the face's users.
    """

    _suggested_code: ClassVar[SuggestedCode]
    _pool: Pool  # a face that has no `_pool` overrides `_running_pool`

    @property
    def _running_pool(self) -> Pool | None:
        return self._pool

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Raises TypeError once there are workers, because workers cannot be copied."""
        if self._running_pool is None:
            return super().__reduce_ex__(protocol)
        raise not_copied(self)

    def stats(self) -> PoolStats:
        """Returns a snapshot of the time that the envs, the workers and this program have spent, by activity.

        ``later - earlier`` has the times between two snapshots, and ``stats().verdict`` names the limit of the
        throughput.

        Raises:
            remuda.StateError: The workers have not been started yet.
            remuda.ClosedError: It is closed.
        """
        pool = self._running_pool
        if pool is None:
            raise StateError(f"expected a {type(self).__name__} that runs; start it first")
        stats = pool.stats()
        return replace(stats, setup=self._suggested_code.put_into(stats.setup))
