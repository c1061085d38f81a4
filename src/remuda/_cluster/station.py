"""The place of a shard: what it is sent, and how that gets to the actor that is there now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from remuda._cluster import actors
from remuda._cluster.replies import ShardReport
from remuda._cluster.shares import Share
from remuda.errors import RemudaError


@dataclass(eq=False)
class Sent:
    """A message to a shard, and what its answer is known by.

    Attributes:
        station: The shard's place.
        method, arguments: Of the actor.
        generation: Which of the actors that were there has it.
        ref: Of the answer. Another one, where the message had to be sent again.
    """

    station: Station
    method: str
    arguments: tuple[Any, ...]
    generation: int = 0
    ref: actors.Ref = None


@dataclass(eq=False)
class Station:
    """The place of a shard, and the actor that is there now.

    Until that one has answered, what it is sent is kept. For Ray may have put it on a machine that was dead already,
    and an actor that never ran has done nothing: the next one is sent the same, in the same order. (What an actor is
    sent goes out when Ray knows that it runs: so one that Ray calls one that never ran has had nothing of it.)

    Attributes:
        share: Its envs.
        actor: Does its commands, as soon as it has built them.
        building: What will tell that it has; None once it is known.
        generation: How many there were before.
        restarts: How many of those have died.
        report: Of the first.
        node: Of the one before, while this one builds.
        located: The answer of the actor with its machine, which it gives as soon as it runs.
        error: Why there is nobody, and will be nobody.
        starts: How many in a row never ran, with this one.
        num_sent: How many commands were sent so far.
    """

    share: Share
    actor: actors.Actor = None
    building: Sent | None = None
    generation: int = 0
    restarts: int = 0
    report: ShardReport | None = None
    node: str = "unknown"
    located: actors.Ref = None
    error: RemudaError | None = None
    starts: int = 0
    num_sent: int = 0
    _kept: list[Sent] | None = field(default_factory=list)

    def send(self, method: str, *arguments: Any) -> Sent:
        """To the actor that is there now. What is sent first is done first."""
        sent = Sent(self, method, arguments)
        self.num_sent += 1
        self._pass_on(sent)
        if self._kept is not None:
            self._kept.append(sent)
        return sent

    def _pass_on(self, sent: Sent) -> None:
        sent.generation = self.generation
        sent.ref = getattr(self.actor, sent.method).remote(*sent.arguments)

    def begin(self, actor: actors.Actor, *plan: Any) -> Sent:
        """An actor comes, and is to build envs."""
        self.actor, self._kept, self.starts = actor, [], 1
        self.located = actor.locate.remote()
        self.building = self.send("build", *plan)
        return self.building

    def begin_again(self, actor: actors.Actor) -> None:
        """An actor comes for one that never ran, and is sent what that one was sent."""
        self.actor, self.located = actor, actor.locate.remote()
        self.starts += 1
        for sent in self._kept or ():
            self._pass_on(sent)

    def note_built(self) -> None:
        """The actor has answered."""
        self.building = self._kept = None

    def forget(self) -> None:
        """No handle of an actor and no reference may outlive the connection."""
        self.actor = self.building = self.located = self._kept = None


def answered(sent: Iterable[Sent], count: int, timeout: float | None) -> Iterator[Sent]:
    """Those whose answers have come, once there are so many.

    One that is sent again while the caller deals with another one's answer is left out: its own is yet to come.
    """
    by_ref = {one.ref: one for one in sent}
    for ref in actors.wait(list(by_ref), count, timeout):
        if by_ref[ref].ref == ref:
            yield by_ref[ref]
