"""The workers of a pool whose processes are on other machines, as the pool's user sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda._cluster import actors
from remuda._cluster.link import LinkState, ShardLink
from remuda._cluster.messages import Answer


@dataclass(frozen=True)
class RemoteWorker:
    """A worker of a shard. Each question goes to the shard, which answers when its envs have done their steps.

    Attributes:
        index: The index among all of the pool's workers.
        name: The name as `ps` shows it there.
        env_ids: The envs that it hosts.
    """

    index: int
    name: str
    env_ids: tuple[int, ...]
    _link: ShardLink = field(repr=False)

    @property
    def shard(self) -> int:
        """The index of its shard."""
        return self._link.share.shard

    @property
    def node(self) -> str:
        """The machine of its shard, or of the shard before it died."""
        return self._link.node

    @property
    def pid(self) -> int | None:
        """Its process id on that machine."""
        return self._ask("pid")  # type: ignore[no-any-return]

    @property
    def exitcode(self) -> int | None:
        """As in `subprocess`; None while it runs, and if its shard is gone."""
        return self._ask("exitcode")  # type: ignore[no-any-return]

    def is_alive(self) -> bool:
        """Returns whether it runs."""
        return bool(self._ask("is_alive"))

    def output(self, limit: int = 65536) -> str:
        """Returns the end of what it has written; see `Pool.workers`."""
        return str(self._ask("output", limit) or "")

    def _ask(self, attribute: str, *args: Any) -> Any:
        link = self._link
        if link.actor is None or link.state is not LinkState.SERVING:
            return None
        number = self.index - link.workers[0].index
        try:
            answer: Answer = actors.get(link.actor.worker.remote(number, attribute, *args))
        except actors.Lost:
            return None
        answer.log_faults()
        return answer.value
