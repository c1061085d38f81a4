"""The base of `backend=` for envs that run on other machines."""

from __future__ import annotations

from typing import Any


class RemoteBackend:
    """Describes where the envs of a pool run, and names the class of the pool that drives them from here."""

    def pool_type(self) -> type[Any]:
        """The class of that pool, which takes what `Pool` takes."""
        raise NotImplementedError
