"""Hands out the rollouts of all shards in a fair order."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from remuda._cluster.driver.link import Server, ShardLink
from remuda._cluster.messages import Answer, RolloutOrder
from remuda._cluster.ray import actors
from remuda._engine.options.checks import int_from
from remuda._engine.rollouts.shard_rollout import ShardRollout, ShardRollouts
from remuda._engine.startup.start import Counts
from remuda._system.finalizers import hand_over
from remuda._system.own_thread import run_apart
from remuda._training.acting import check_policy
from remuda._training.arguments import check_seed
from remuda.errors import Fault, PickledException, RemoteTraceback, StateError

if TYPE_CHECKING:
    from remuda._cluster.driver.backend import RayBackend
    from remuda._cluster.ray.policies import Publisher
    from remuda._engine.engine import Engine

_LOOK = 0.02  # seconds between two checks for successors of dead shards


class Rollouts(ShardRollouts):
    """The rollouts that shards fill for one call of `ClusterPool.rollouts`.

    A shard's next rollout is requested when the learner takes another one, so the request can name the policy
    that the learner has published in between. Among the finished rollouts, the one that was requested first is
    returned. So all shards take turns, and a rollout's policy misses at most `shards * in_flight` publications.
    """

    def __init__(
        self,
        engine: Engine,
        backend: RayBackend,
        publisher: Publisher,
        steps: int,
        in_flight: int,
        seed: int | None,
        number: int,
        on_close: Callable[[], None],
    ) -> None:
        """`number`: the number of this call of `ClusterPool.rollouts`. `on_close`: called once, at their end."""
        self._engine, self._backend, self._publisher = engine, backend, publisher
        self._steps, self._seed, self._number = steps, secrets.randbits(64) if seed is None else seed, number
        self._on_close: Callable[[], None] | None = on_close
        # The requested rollouts, oldest first: by the reference to the answer, the shard and its actor's generation.
        self._requests: dict[actors.Ref, tuple[ShardLink, int]] = {}
        self._due = list(backend.links) * in_flight  # the shards to request rollouts from, once for each rollout
        self._error: BaseException | None = None
        self._lost: dict[int, Fault] = {}  # by env: a fault that no rollout has reported yet
        self._request_due()

    def note_faults(self, faults: Sequence[Fault]) -> None:
        """Keeps faults, to report them in the next rollouts of their envs."""
        self._lost.update({fault.env_id: fault for fault in faults})

    def _request_due(self) -> None:
        for link in tuple(self._due):
            if (server := link.server) is None:
                continue
            order = RolloutOrder(self._number, self._steps, self._publisher.version, self._publisher.newest, self._seed)
            self._requests[server.actor.rollout.remote(order)] = link, server.generation
            self._due.remove(link)

    def __next__(self) -> ShardRollout:
        while True:
            self._engine.check_open()
            self._backend.cluster.connection.check_open()
            if self._error is not None:
                error, self._error = self._error, None
                self.close()
                raise error
            if self._due:
                run_apart(self._request_due, lambda: None)  # an interrupt must not forget a request that was sent
            if not self._requests and not self._due:
                raise StopIteration
            if (first := self._first_done()) is not None and (rollout := self._take(first)) is not None:
                return rollout

    def _first_done(self) -> actors.Ref | None:
        """Waits for finished rollouts. Returns the one that was requested first; None if the caller must try again.

        Ray returns finished messages in any order. If the first one were taken, a slow learner would get nearly all its
        rollouts from a few shards.
        """
        # The oldest to each shard, because later ones may be answered first.
        oldest = {link: ref for ref, (link, _) in reversed(self._requests.items())}
        refs = [ref for ref in self._requests if ref in oldest.values()]
        if self._due:  # some shards are dead, and their successors are being started
            self._attend()
        done = actors.wait(refs, 1, 0 if self._due else None) if refs else []
        if done and done[0] is not refs[0]:
            done = actors.wait(refs, len(refs), 0)
        return next((ref for ref in refs if ref in done), None)

    def _attend(self) -> None:
        """Lets the engine handle deaths and start successors. Keeps the error of a shard that gets no successor."""
        self._engine.exchange.attend_until(time.monotonic() + _LOOK)
        faults = self._engine.faults
        for link in set(self._due):
            if faults.is_lost(link.share.first):
                self._due = [other for other in self._due if other is not link]
                self._error = self._error or faults.lost(link.share.first)

    def _take(self, ref: actors.Ref) -> ShardRollout | None:
        link, generation = self._requests[ref]
        try:
            answer: Answer = actors.get(ref)  # before the request is forgotten, so that an interrupt loses no rollout
        except actors.Lost as error:
            self._forget(ref)
            self._backend.lose(link, generation, error)
            self._attend()
            return None
        self._forget(ref)
        rollout: ShardRollout | None = None
        if answer.value is None:
            self._error = answer.error or _raised(answer)
        else:
            rollout, progress = answer.value
            self._note(link, rollout, None if generation != link.generation else progress)
        answer.log_faults()
        return rollout

    def _forget(self, ref: actors.Ref) -> None:
        """Makes the next request due in place of one that was answered."""
        self._due.append(self._requests[ref][0])  # first: an interrupt must not leave the shard without a request
        del self._requests[ref]

    def _note(self, link: ShardLink, rollout: ShardRollout, progress: Counts | None) -> None:
        """`progress`: the counts of the envs; None if the actor has died since."""
        self._backend.metrics.note_rollout(link.share.shard, self._publisher.version - rollout.policy_version)
        if progress is None:
            return  # the first rollout of the actor's successor reports the death
        self._backend.note_progress(link.share, progress)
        lost = [self._lost.pop(env, None) for env in rollout.env_ids.tolist()]
        rollout.lost = (*(fault for fault in lost if fault is not None), *rollout.lost)

    def close(self) -> None:
        self._end(lambda stop: stop())

    def _end(self, execute: Callable[[Callable[[], object]], object]) -> None:
        """Ends the rollouts. `execute`: calls a function that waits for Ray."""
        links = {link for link, _ in self._requests.values()}
        if links and self._backend.cluster.connection.is_open:
            execute(partial(_stop, [server for link in links if (server := link.server) is not None], self._number))
        self._requests, self._due = {}, []
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_lost"):  # the constructor may have been interrupted
            self._end(hand_over)


def _stop(servers: Sequence[Server], number: int) -> None:
    for server in servers:
        server.actor.stop_rollouts.remote(number)


def _raised(answer: Answer) -> BaseException:
    """Returns the exception of the policy, with the shard's traceback."""
    assert answer.raised is not None  # there is no rollout and no env's error, so the policy raised
    name, message, text, pickled = answer.raised
    error = None if pickled is None else PickledException(pickled, text).load()
    if error is None:
        error = RuntimeError(f"the policy raised {name}: {message}")
        error.__cause__ = RemoteTraceback(text)
    return error


def check_rollouts(engine: Engine, policy: Any, steps: int, in_flight: int, seed: int | None) -> None:
    """Raises an error if rollouts with these arguments cannot begin now."""
    check_policy(policy)
    check_seed(seed)
    int_from(1)("steps", steps)
    int_from(1)("in_flight", in_flight)
    layout = engine.layout
    if layout.observation.num_objects or layout.action.num_objects:
        raise ValueError(
            f"expected spaces that are made of arrays, got {layout.observation_space} and {layout.action_space}: a "
            "rollout is made of arrays"
        )
    if not (layout.mode.in_next_step or layout.mode.in_same_step):
        raise ValueError(
            f"expected autoreset='next_step' or 'same_step' for rollouts, got {layout.autoreset!r}: a shard resets "
            "envs by itself"
        )
    if engine.settings.max_concurrency is not None:
        raise ValueError("expected max_concurrency=None for rollouts: each shard steps its envs by itself")
    if engine.running.slots.any_pending:
        raise StateError("expected no env in flight when rollouts begin; call recv or discard first")
