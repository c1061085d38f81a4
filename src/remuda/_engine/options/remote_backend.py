"""What `backend=` may be beside a name: a description of where envs run that do not run on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda._engine.pool.pool import Pool


class RemoteBackend:
    """Describes where the envs of a pool run, if not on this machine, and knows the pool that drives them from here."""

    def pool_type(self) -> type[Pool]:
        """The class of that pool, which takes what `Pool` takes."""
        raise NotImplementedError
