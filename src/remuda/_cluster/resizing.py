"""Divides the envs of an open pool among another number of shards."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from remuda._cluster.driver.backend import RayBackend
from remuda._cluster.driver.link import ShardLink
from remuda._cluster.driver.start_wait import StartWait
from remuda._cluster.messages import Answer, BuildOrder
from remuda._cluster.ray import actors
from remuda._engine.engine import Engine
from remuda._engine.options.checks import is_int
from remuda._relay.log import logger
from remuda.errors import RemudaError, StartTimeoutError, StateError

_CLOSING = 10.0  # seconds for envs to close


def check_resize(engine: Engine, backend: RayBackend, shards: int, *, has_rollouts: bool) -> None:
    """Raises an error if the pool cannot be resized to this number of shards now."""
    most, where = engine.layout.num_envs // engine.layout.width, backend.options.where
    if not is_int(shards) or not 1 <= shards <= most:
        what = "envs" if engine.layout.width == 1 else "vector envs"
        raise ValueError(f"expected shards to be an int from 1 to {most} (the number of {what}), got {shards!r}")
    if where.placement not in ("auto", "spread"):
        raise ValueError(
            f"expected placement='auto' or 'spread' where a pool is resized, got {where.placement!r}: the room that "
            "Ray reserves for other placements can neither grow nor shrink"
        )
    if has_rollouts:
        raise StateError("expected no rollouts under way when a pool is resized; call their close() first")
    if engine.running.slots.any_pending:
        raise StateError("expected no env in flight when a pool is resized; call recv or discard first")
    engine.faults.check_alive(range(engine.layout.num_slots))


class Resizing:
    """Builds all envs again, divided among another number of shards, while the old envs are open.

    If an env cannot be built, or there is no room, nothing changes. Shards that stay keep their actors.

    Attributes:
        new: The backend with the other number of shards.
        is_decided: Whether the new envs are about to replace the old ones, so that `give_up` does nothing.
    """

    def __init__(self, old: RayBackend, shards: int) -> None:
        options = old.options.with_shards(shards)
        self._old, self.new = old, RayBackend(old.env_fns(), options, old.cluster)
        self._stay = old.links[:shards]
        self.is_decided = False
        self._closed: list[Answer] = []  # the answers of shards that have closed old envs

    def build(self, timeout: float | None) -> None:
        """Builds the new envs. After `give_up`, the pool is unchanged, unless a shard has died."""
        try:
            for link, before in zip(self.new.links, self._stay, strict=False):
                link.start_beside(before, self._order)
            for link in self.new.links[len(self._stay) :]:
                link.start(self._order)
            new = self.new
            wait = StartWait(new.links, new.receiver, new.cluster.placement, new.options.width, timeout)
            wait.await_reports(self.new.links, _raise_loss)
        except StartTimeoutError as error:
            raise StartTimeoutError(f"{error}. The pool is as before") from None

    def _order(self, link: ShardLink) -> BuildOrder:
        return replace(self.new.order(link), inherited=self._old.inheritance(link.share))

    def give_up(self) -> None:
        """Drops the new envs, built or not."""
        if self.is_decided:
            return
        for link in self.new.links:
            link.kill()
            link.forget()
        for before in self._stay:
            if before.server is not None:
                before.server.actor.drop_prepared.remote()
        self.new.release()

    def take_places(self) -> list[Any]:
        """Replaces the envs of all shards by the new envs. Returns the report of each new env.

        The threads of the old engine must have ended.
        """
        ended = self._old.links[len(self._stay) :]
        closing = [link.actor.close.remote(_CLOSING) for link in ended]
        closing += [link.take_over() for link in self.new.links[: len(self._stay)]]
        reports = self.new.make_workers()
        for ref in actors.wait(closing, len(closing), _CLOSING + 2.0) if closing else ():
            with suppress(actors.Lost):  # the next command to this dead shard reports its death
                self._closed.append(actors.get(ref))
        for link in ended:
            link.kill()
            link.forget()
        self._old.release()
        return reports

    def log_failures(self) -> None:
        """Logs exceptions of closing the old envs. They are not raised, because the pool continues with the new ones.

        Log handlers are code of the program, so this runs in the thread that has called `resize`.
        """
        for answer in self._closed:
            if isinstance(answer.error, RemudaError):
                logger.warning("%s", answer.error)
            answer.log_faults()


def _raise_loss(link: ShardLink) -> None:
    raise link.failure()
