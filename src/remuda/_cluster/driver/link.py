"""The driver's connection to a shard. It stays the same when a new actor replaces the shard's dead actor."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from remuda._cluster.driver.engine_worker import EngineWorker
from remuda._cluster.driver.messenger import Messenger
from remuda._cluster.driver.row_writer import RowWriter
from remuda._cluster.driver.shares import Share
from remuda._cluster.messages import Answer, BuildOrder, ShardReport
from remuda._cluster.ray import actors
from remuda._relay.log import logger
from remuda.errors import ShardDiedError

_STARTS = 8  # the most tries to start an actor: Ray may place it on a machine that has just died


class LinkState(Enum):
    """The state of a shard's actor."""

    ABSENT = "there is none"
    STARTING = "it waits for room, or its process starts"
    BUILDING = "it builds its envs"
    SERVING = "it runs commands"
    GONE = "it died, or could not build its envs"


class ShardLink:
    """The driver's connection to a shard.

    Attributes:
        share: The envs of the shard.
        name: The name of its actors.
        actor: The current actor; None if there is none.
        state: Its state.
        generation: The number of actors that died before.
        node: The machine of the actor, or of its predecessor.
        report: The envs and workers that the actor has built; None until then.
        error: The exception of building the envs; None if there is none.
        workers: The workers of the shard, once they are known.
        messenger: The messages to the actor; None until the pool has memory.
    """

    def __init__(self, cluster: actors.Cluster, share: Share, name: str) -> None:
        self._cluster, self.share, self.name = cluster, share, name
        self.actor: actors.Actor = None
        self.state, self.generation, self.node = LinkState.ABSENT, 0, "unknown"
        self.report: ShardReport | None = None
        self.error: Exception | None = None
        self.workers: list[EngineWorker] = []
        self.messenger: Messenger | None = None
        self._order: Callable[[ShardLink], BuildOrder]
        self._located: actors.Ref = None
        self._built: actors.Ref = None
        self._beside: ShardLink | None = None  # the link whose envs the actor has while it builds those of this link
        self._starts = 0
        self._reason = ""
        self._death: ShardDiedError | None = None
        self._writer: RowWriter | None = None

    # -- start -------------------------------------------------------------------------------------------

    def start(self, order: Callable[[ShardLink], BuildOrder], generation: int = 0) -> None:
        """Starts an actor, which builds the envs once the cluster has room. `order` returns a link's BuildOrder."""
        self._order, self.generation, self._starts = order, generation, 0
        self.report = self.error = self._death = None
        self._start_actor()

    def _start_actor(self) -> None:
        self._starts += 1
        again = "" if self._starts + self.generation == 1 else f"-again-{self.generation}-{self._starts}"
        self.actor = self._cluster.start(self.share.shard, self.generation, f"{self.name}{again}")
        self._located = self.actor.locate.remote()
        self.state = LinkState.STARTING

    def open(self, writer: RowWriter) -> None:
        """Opens the rings of all workers of the shard in the pool's memory."""
        self._writer = writer
        for worker in self.workers:
            worker.open(writer.layout, writer.arena)
        self.messenger = Messenger(self.share, self.workers, writer)

    def join(self, worker: EngineWorker) -> None:
        """Connects a worker of the current actor to the pool, in place of the worker that died."""
        assert self._writer is not None  # set by `open`
        if worker is self.workers[0]:
            self.actor.number_workers.remote(worker.index)
            self.messenger = Messenger(self.share, self.workers, self._writer)
        worker.open(self._writer.layout, self._writer.arena)
        worker.revive()

    def start_beside(self, other: ShardLink, order: Callable[[ShardLink], BuildOrder]) -> None:
        """Makes the actor of another link build the envs of this link, while it continues to run its own envs."""
        self._beside = other
        self.actor, self.generation, self.node = other.actor, other.generation, other.node
        self._built, self.state = self.actor.build.remote(order(self)), LinkState.BUILDING

    def take_over(self) -> actors.Ref:
        """Replaces the envs of the other link by those of this link. Returns the reference to an `Answer`."""
        self._beside = None
        return self.actor.take_prepared.remote()

    # -- messages ----------------------------------------------------------------------------------------

    @property
    def is_coming(self) -> bool:
        """Whether an actor is being started, or builds its envs."""
        return self.state in (LinkState.STARTING, LinkState.BUILDING)

    @property
    def refs(self) -> list[actors.Ref]:
        """The references to the actor's answers that the driver waits for."""
        if self.is_coming:
            return [self._located if self.state is LinkState.STARTING else self._built]
        return [] if self.messenger is None else self.messenger.refs

    def pass_on(self) -> None:
        """Sends the commands in the rings of the workers to the actor."""
        if self.state is LinkState.SERVING and self.messenger is not None:
            self.messenger.pass_on(self.actor)

    def handle(self, ref: actors.Ref, timeout: float | None = None) -> None:
        """Waits for an answer of the actor and handles it, unless a log handler that used the pool has done so.

        If a log handler raises, its exception is raised at the end. Raises TimeoutError if the answer does not come
        within `timeout` seconds.
        """
        if ref not in self.refs:
            return None
        try:
            answer = actors.get(ref, timeout)
        except actors.Lost as error:
            return self.lose(error)
        if ref is self._located:
            self.node, self._built = answer, self.actor.build.remote(self._order(self))
            self.state = LinkState.BUILDING
        elif ref is self._built:
            self._note_built(answer)
        elif self.messenger is not None:
            self.messenger.handle(answer)
        return None

    def _note_built(self, answer: Answer) -> None:
        if answer.error is None:
            self.report, self.state = answer.value, LinkState.SERVING
        else:
            self.error = answer.error
            self.kill()
        answer.log_faults()

    # -- death -------------------------------------------------------------------------------------------

    def lose(self, error: actors.Lost) -> None:
        """Handles the loss of the actor. If the actor never ran, starts another one.

        Ray places actors on a dead machine for some seconds, until it detects the death.
        """
        if self.state is LinkState.STARTING and not error.has_no_runtime_env and self._starts < _STARTS:
            logger.info("shard %d never ran: %s; it is started elsewhere", self.share.shard, error)
            self._cluster.kill(self.actor)
            return self._start_actor()
        if self._beside is not None:
            self._beside.lose(error)
        self._reason = str(error)
        if error.has_no_runtime_env:
            self.error = ValueError(
                f"expected a runtime_env that Ray can set up: shard {self.share.shard} could not start, because {error}"
            )
        return self.kill()

    def kill(self) -> None:
        """Ends the actor, and all workers of the shard with it."""
        if self.state in (LinkState.ABSENT, LinkState.GONE):
            return
        self.state, self.messenger = LinkState.GONE, None
        if self._beside is None:
            self._cluster.kill(self.actor)
        for worker in self.workers:
            worker.die(None)

    def death(self, operation: str) -> ShardDiedError:
        """Returns the error for the death of the actor. All workers of the actor get the same error."""
        if self._death is None:
            self._death = ShardDiedError(
                shard=self.share.shard,
                node=self.node,
                reason=self._reason,
                worker=self.workers[0].index if self.workers else -1,
                env_ids=self.share.env_ids,
                operation=operation,
            )
        return self._death

    def forget(self) -> None:
        """Drops all references to Ray and to the pool's memory, because none may outlive the connection to Ray."""
        self.actor = self._located = self._built = self.messenger = self._writer = None
