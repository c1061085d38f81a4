"""The driver's connection to a shard. It stays the same when a new actor replaces the shard's dead actor."""

from __future__ import annotations

import pickle
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from remuda._cluster.driver.engine_worker import EngineWorker
from remuda._cluster.driver.messenger import Messenger
from remuda._cluster.driver.receiver import Receiver
from remuda._cluster.driver.row_writer import RowWriter
from remuda._cluster.driver.shares import Share
from remuda._cluster.messages import Answer, BuildOrder, Reply, ShardReport
from remuda._cluster.ray import actors
from remuda._engine.supervision.fault_log import log_alike
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


class Server(NamedTuple):
    """An actor that runs commands. `generation`: the number of actors of the shard that died before."""

    actor: actors.Actor
    generation: int
    report: ShardReport


class ShardDeath:
    """Makes the error for the death of an actor. All workers of the actor get the same error."""

    def __init__(self, share: Share, node: str, reason: str, first_worker: int) -> None:
        self._share, self._node, self._reason, self._first_worker = share, node, reason, first_worker
        self._error: ShardDiedError | None = None

    def __call__(self, operation: str) -> ShardDiedError:
        """Returns the error. `operation`: what the actor was doing when it died, as the first caller states it."""
        if self._error is None:
            self._error = ShardDiedError(
                shard=self._share.shard,
                node=self._node,
                reason=self._reason,
                worker=self._first_worker,
                env_ids=self._share.env_ids,
                operation=operation,
            )
        return self._error


class ShardLink:
    """The driver's connection to a shard. One thread uses it, see `Receiver`. Any thread may call `join`, and may read
    `share`, `generation`, `node`, `workers` and `server`.

    Attributes:
        share: The envs of the shard.
        name: The name of its actors.
        actor: The current actor; None if there is none.
        state: Its state.
        generation: The number of actors that died before.
        node: The machine of the actor, or of its predecessor.
        server: The actor while it runs commands; otherwise None.
        error: The exception of building the envs; None if there is none.
        workers: The workers of the shard, once they are known.
        messenger: The messages to the actor; None until the pool has memory.
    """

    def __init__(self, cluster: actors.Cluster, share: Share, name: str, receiver: Receiver) -> None:
        self._cluster, self.share, self.name, self._receiver = cluster, share, name, receiver
        self.actor: actors.Actor = None
        self.state, self.generation, self.node = LinkState.ABSENT, 0, "unknown"
        self.server: Server | None = None
        self.error: Exception | None = None
        self.workers: list[EngineWorker] = []
        self.messenger: Messenger | None = None
        self._order: Callable[[ShardLink], BuildOrder]
        self._shares_actor = False  # whether the actor still runs the envs of another link
        self._starts = self._launches = 0
        self._reason = ""
        self._death = ShardDeath(share, "unknown", "", -1)
        self._writer: RowWriter | None = None
        self._awaiting: list[Future[Server]] = []
        self._lock = threading.Lock()  # held while the actor becomes GONE, and while a worker joins the pool

    # -- start -------------------------------------------------------------------------------------------

    def start(self, order: Callable[[ShardLink], BuildOrder], generation: int = 0) -> None:
        """Starts an actor, which builds the envs once the cluster has room. `order` returns a link's BuildOrder."""
        self._order, self.generation, self._starts = order, generation, 0
        self.error = None
        self._start_actor()

    def _start_actor(self) -> None:
        self._starts += 1
        self._launches += 1
        self.state = LinkState.STARTING
        self._cluster.connection.check_open()  # otherwise Ray would start another cluster
        again = "" if self._starts + self.generation == 1 else f"-again-{self.generation}-{self._starts}"
        self.actor = self._cluster.start(self.share.shard, self.generation, f"{self.name}{again}")
        self._expect(self.actor.locate.remote(), ShardLink._note_located)
        self._expect(self.actor.never.remote(), ShardLink._note_never)

    def start_beside(self, other: ShardLink, order: Callable[[ShardLink], BuildOrder]) -> None:
        """Makes the actor of another link build the envs of this link, while it continues to run its own envs."""
        if other.server is None:  # the other actor has just died
            raise other.failure()
        self._shares_actor = True
        (self.actor, self.generation, _), self.node = other.server, other.node
        self.state = LinkState.BUILDING
        self._expect(self.actor.never.remote(), ShardLink._note_never)
        self._expect(self.actor.build.remote(order(self)), ShardLink._note_built)

    def take_over(self) -> actors.Ref:
        """Replaces the envs of the other link by those of this link. Returns the reference to an `Answer`."""
        self._shares_actor = False
        return self.actor.take_prepared.remote()

    def open(self, writer: RowWriter) -> None:
        """Opens the rings of all workers of the shard in the pool's memory."""
        self._writer = writer
        for worker in self.workers:
            worker.open(writer.layout, writer.arena)
        self.messenger = Messenger(self.share, self.workers, writer)

    # -- successors --------------------------------------------------------------------------------------

    def request_successor(self, order: Callable[[ShardLink], BuildOrder], future: Future[Server]) -> None:
        """Starts an actor if there is none. `future` receives its `Server`, or the error of the start."""
        self._awaiting.append(future)
        if self.server is not None:
            self._settle(self.server)
        elif self.state is LinkState.GONE:
            self.act(self.start, order, self.generation + 1)

    def _settle(self, outcome: Server | Exception) -> None:
        futures, self._awaiting = self._awaiting, []
        for future in futures:
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def join(self, worker: EngineWorker) -> None:
        """Connects a worker of the actor to the pool, in place of the worker that died. Any thread may call this.

        Raises ShardDiedError if the actor has died since it built the worker's envs.
        """
        with self._lock:
            if self._writer is None or self.server is None or self.server.generation != worker.generation:
                raise self._death("build")
            worker.open(self._writer.layout, self._writer.arena)
            worker.revive()

    # -- answers -----------------------------------------------------------------------------------------

    def _expect(self, ref: actors.Ref, then: Callable[[ShardLink, Any], None]) -> None:
        """Makes the receiver call `then(self, answer)` once the actor has answered."""
        arrive = partial(_arrive, weakref.ref(self), self._launches, then)
        actors.when_done(ref, lambda outcome: self._receiver.post(partial(arrive, outcome)))

    def arrive(self, launch: int, then: Callable[[ShardLink, Any], None], outcome: actors.Outcome) -> None:
        """Handles an answer of the actor that was started as number `launch`."""
        if launch != self._launches or self.state is LinkState.GONE:
            return
        try:
            answer = actors.answer_of(outcome)
        except actors.Lost as error:
            # After `ray.shutdown()`, the pool's next call reports that, unless one waits for an answer now.
            if self.awaits_reply or self.server is None or self._cluster.connection.is_open:
                self.lose(error)
        else:
            then(self, answer)

    def act(self, function: Callable[..., object], *args: Any) -> None:
        """Calls a function for the actor. If the function raises, as after `ray.shutdown()`, the actor is ended."""
        try:
            function(*args)
        except Exception as error:
            self.error = error
            self.kill(reason=f"it is ended: {traceback.format_exc()}")

    def _note_located(self, node: str) -> None:
        self.node, self.state = node, LinkState.BUILDING
        self._expect(self.actor.build.remote(self._order(self)), ShardLink._note_built)

    def _note_built(self, answer: Answer) -> None:
        self._note_faults(answer)
        if answer.error is not None:
            self.error = answer.error
            return self.kill()
        if self._writer is not None:  # the actor is a successor
            self.actor.number_workers.remote(self.workers[0].index)
            self.messenger = Messenger(self.share, self.workers, self._writer)
        self.state, self.server = LinkState.SERVING, Server(self.actor, self.generation, answer.value)
        return self._settle(self.server)

    def _note_never(self, _: None) -> None:
        """Does nothing, because the actor does not answer this call until it dies."""

    def _note_faults(self, answer: Answer | Reply) -> None:
        """Keeps the faults that came with an answer for the supervisor, which logs them before it hands out results."""
        for report in answer.fault_reports:
            self._receiver.log_later(partial(log_alike, *report))
            if self.workers:
                self.workers[0].note_record()

    # -- messages ----------------------------------------------------------------------------------------

    @property
    def awaits_reply(self) -> bool:
        """Whether a message to the actor has no answer yet."""
        return self.messenger is not None and self.messenger.is_under_way

    def pass_on(self, pauses: list[float]) -> None:
        """Sends the commands in the rings of the workers to the actor.

        Adds the seconds until this must be called again to `pauses`, unless the next event is early enough.
        """
        if self.messenger is None:
            return
        refs, pause = self.messenger.pass_on(self.actor)
        for ref in refs:
            self._expect(ref, ShardLink._note_reply)
        if pause is not None:
            pauses.append(pause)

    def _note_reply(self, packed: Answer | Reply | bytes) -> None:
        assert self.messenger is not None  # an actor that is alive has one
        answer: Answer | Reply = pickle.loads(packed) if isinstance(packed, bytes) else packed
        self._note_faults(answer)
        self.messenger.handle(answer)

    # -- death -------------------------------------------------------------------------------------------

    def lose(self, error: actors.Lost) -> None:
        """Handles the loss of the actor. If the actor never ran, starts another one.

        Ray places actors on a dead machine for some seconds, until it detects the death.
        """
        if self.state is LinkState.STARTING and not error.has_no_runtime_env and self._starts < _STARTS:
            text = "shard %d never ran: %s; it is started elsewhere"
            self._receiver.log_later(partial(logger.info, text, self.share.shard, error))
            self._cluster.kill(self.actor)
            return self._start_actor()
        self._reason = str(error)
        if error.has_no_runtime_env:
            self.error = ValueError(
                f"expected a runtime_env that Ray can set up: shard {self.share.shard} could not start, because {error}"
            )
        return self.kill()

    def kill(self, generation: int | None = None, reason: str | None = None) -> None:
        """Ends the actor, and all workers of the shard with it.

        Args:
            generation: The generation of the actor. Another actor is not ended. None: any.
            reason: The reason, for the error of the death. None: the last one.
        """
        if self.state in (LinkState.ABSENT, LinkState.GONE) or generation not in (None, self.generation):
            return
        if not self._shares_actor and self.actor is not None:
            self._cluster.kill(self.actor)
        was_serving, self._reason = self.server is not None, self._reason if reason is None else reason
        with self._lock:
            self.state, self.server, self.messenger = LinkState.GONE, None, None
            self._death = ShardDeath(self.share, self.node, self._reason, self.workers[0].index if self.workers else -1)
            for worker in self.workers if was_serving else ():
                worker.die(self._death)
        if self._awaiting:
            self._settle(self.failure())

    def failure(self) -> Exception:
        """Returns why a GONE actor has not built its envs."""
        return self.error or self._death("build")

    def forget(self) -> None:
        """Drops all references to Ray and to the pool's memory, because none may outlive the connection to Ray."""
        self.actor = self.server = self.messenger = self._writer = None


def _arrive(
    link: weakref.ref[ShardLink], launch: int, then: Callable[[ShardLink, Any], None], outcome: actors.Outcome
) -> None:
    """Handles an answer, unless the link was dropped. Ray keeps this function until the actor answers or dies."""
    if (its := link()) is not None:
        its.act(its.arrive, launch, then, outcome)
