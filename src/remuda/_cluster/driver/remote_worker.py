"""The workers on other machines, as the pool's user sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda._cluster.driver.link import ShardLink
from remuda._cluster.messages import Answer
from remuda._cluster.ray import actors


@dataclass(frozen=True)
class RemoteWorker:
    """A worker of a shard. Reading its state waits until the shard has run the commands that were sent before.

    Attributes:
        index: The index among all of the pool's workers.
        name: The name that `ps` shows on its machine.
        env_ids: The envs that it hosts.
    """

    index: int
    name: str
    env_ids: tuple[int, ...]
    _link: ShardLink = field(repr=False)

    @property
    def shard(self) -> int:
        """The index of the worker's shard."""
        return self._link.share.shard

    @property
    def node(self) -> str:
        """The machine of the worker's shard; for a dead shard its last machine."""
        return self._link.node

    @property
    def pid(self) -> int | None:
        """The worker's process id on its machine."""
        return self._ask("pid")  # type: ignore[no-any-return]

    @property
    def exitcode(self) -> int | None:
        """The exit code as in `subprocess`; None while the worker runs, or if its shard is gone."""
        return self._ask("exitcode")  # type: ignore[no-any-return]

    def is_alive(self) -> bool:
        """Returns whether the worker runs."""
        return bool(self._ask("is_alive"))

    def output(self, limit: int = 65536) -> str:
        """Returns the end of the worker's output; see `Pool.workers`."""
        return str(self._ask("output", limit) or "")

    def _ask(self, attribute: str, *args: Any) -> Any:
        link, server = self._link, self._link.server
        if server is None:
            return None
        number = self.index - link.workers[0].index
        try:
            answer: Answer = actors.get(server.actor.worker.remote(number, attribute, *args))
        except actors.Lost:
            return None
        answer.log_faults()
        if answer.error is not None:
            raise answer.error
        return answer.value
