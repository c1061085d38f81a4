"""The workers of a pool whose processes are on other machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda._cluster import actors
from remuda._cluster.replies import Answer
from remuda._cluster.station import Station


@dataclass(frozen=True)
class RemoteWorker:
    """A worker of a shard; asking it anything asks the shard, which answers when its envs have done their steps.

    Attributes:
        index: Among all of the pool's.
        name: As `ps` shows it there.
        env_ids: Its envs.
    """

    index: int
    name: str
    env_ids: tuple[int, ...]
    _station: Station = field(repr=False)
    _number: int = field(repr=False)

    @property
    def shard(self) -> int:
        """The shard that it is of."""
        return self._station.share.shard

    @property
    def node(self) -> str:
        """The machine that its shard is on, or was before it died."""
        return self._station.node

    @property
    def pid(self) -> int | None:
        """Its process id on that machine."""
        return self._ask("pid")  # type: ignore[no-any-return]

    @property
    def exitcode(self) -> int | None:
        """As `subprocess` has it; None while it runs, and where nobody is left to ask."""
        return self._ask("exitcode")  # type: ignore[no-any-return]

    def is_alive(self) -> bool:
        """Whether it runs."""
        return bool(self._ask("is_alive"))

    def output(self, limit: int = 65536) -> str:
        """What it has written last; see `Pool.workers`."""
        return str(self._ask("output", limit) or "")

    def _ask(self, attribute: str, *args: Any) -> Any:
        if self._station.actor is None or self._station.error is not None:
            return None
        try:
            answer: Answer = actors.get(self._station.actor.worker.remote(self._number, attribute, *args))
        except actors.Lost:
            return None
        answer.log_faults()
        return answer.value
