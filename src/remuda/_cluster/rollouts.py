"""Hands out the rollouts of all shards in a fair order."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from remuda._cluster import actors
from remuda._cluster.replies import RolloutOrder, RolloutReply
from remuda._cluster.station import Sent, Station, answered
from remuda._engine.rollouts.shard_rollout import ShardRollout, ShardRollouts
from remuda._training.acting import check_policy
from remuda._training.arguments import check_seed
from remuda._wire.failures import load_exception
from remuda.errors import RemoteTraceback, StateError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from remuda._cluster.engine import ClusterEngine


class Rollouts(ShardRollouts):
    """Rollouts of the shards of a cluster.

    A shard is asked for its next rollout when the learner comes for another one, so the request can name the policy
    that the learner has published in between. Among the rollouts that are done, the one that was asked for first is
    handed out. So each shard gets its turn, and a rollout's policy misses at most `shards * in_flight` publications.
    """

    def __init__(self, cluster: ClusterEngine, steps: int, in_flight: int, seed: int) -> None:
        self._cluster, self._steps, self._seed = cluster, steps, seed
        self._number = cluster.num_rollouts = cluster.num_rollouts + 1
        self._asked: list[Sent] = []  # in the order in which they were asked for
        self._due = list(cluster.fleet.stations) * in_flight  # a place for each rollout that is to be asked for
        self._error: BaseException | None = None
        self._ask_due()

    def _ask_due(self) -> None:
        while self._due:
            station, publisher = self._due.pop(0), self._cluster.driver.publisher
            if station.error is None:
                order = RolloutOrder(self._number, self._steps, publisher.version, publisher.newest, self._seed)
                self._asked.append(station.send("rollout", order))

    def __next__(self) -> ShardRollout:
        while True:
            self._cluster.check_open()
            if self._error is not None:
                error, self._error = self._error, None
                self.close()
                raise error
            self._ask_due()
            if not self._asked:
                raise StopIteration
            if (rollout := self._take(self._first_done())) is not None:
                return rollout

    def _first_done(self) -> Sent:
        """Waits until a rollout is done. Returns the one that was asked for first.

        Ray returns finished messages in any order. If the first were taken, a slow learner would get nearly all of its
        rollouts from a few shards.
        """
        oldest: dict[Station, Sent] = {}  # a later rollout may arrive earlier from another machine
        for sent in self._asked:
            oldest.setdefault(sent.station, sent)
        while True:
            for sent in answered(oldest.values(), 1, None):
                done = set(answered(oldest.values(), len(oldest), 0))
                return next((one for one in oldest.values() if one in done), sent)

    def _take(self, sent: Sent) -> ShardRollout | None:
        fleet = self._cluster.driver.fleet
        try:
            reply: RolloutReply = actors.get(sent.ref)
        except actors.Lost as error:
            if not fleet.starts_elsewhere(sent, error):
                self._replace(sent, error)
            return None
        if (failure := fleet.note_rebuilt(sent)) is not None:
            self._replace(sent, failure)
            return None
        self._asked.remove(sent)
        self._due.append(sent.station)
        if reply.rollout is None:
            self._error = reply.errors[0] if reply.errors else _raised(reply)
        else:
            self._note(sent, reply.rollout, reply.given)
        reply.log_faults()
        return reply.rollout

    def _note(self, sent: Sent, rollout: ShardRollout, given: npt.NDArray[np.int64] | None) -> None:
        ledger = self._cluster.ledger
        if given is not None:
            ledger.note_given(rollout.env_ids, given)
        if sent.generation != sent.station.generation:
            return  # filled by a shard that has died since: its successor's first rollout reports the loss
        lost = [ledger.owed.pop(env, None) for env in rollout.env_ids.tolist()]
        rollout.lost = (*(fault for fault in lost if fault is not None), *rollout.lost)

    def _replace(self, sent: Sent, error: Exception) -> None:
        """Handles a lost shard. Its successor is asked for the same rollout."""
        self._asked.remove(sent)
        lost = self._cluster.driver.died(sent, error, "step")
        if lost is not None:
            self._error = lost
            return
        self._due.append(sent.station)

    def close(self) -> None:
        busy = {sent.station for sent in self._asked}
        self._asked.clear()
        self._due.clear()
        if self._cluster.rollouts is self:
            self._cluster.rollouts = None
            self._cluster.ledger.must_reset[:] = True
            self._cluster.fleet.stop_rollouts(self._number, busy)


def _raised(reply: RolloutReply) -> BaseException:
    """What the policy has raised, with the traceback from there."""
    assert reply.raised is not None  # there is no rollout, and no env has failed
    name, message, text, pickled = reply.raised
    error = load_exception(text, pickled)
    if error is None:
        error = RuntimeError(f"the policy raised {name}: {message}")
        error.__cause__ = RemoteTraceback(text)
    return error


def check_rollouts(cluster: ClusterEngine, policy: Any, steps: int, in_flight: int, seed: int | None) -> None:
    """Raises the errors of `ClusterPool.rollouts`."""
    check_policy(policy)
    check_seed(seed)
    for name, number in (("steps", steps), ("in_flight", in_flight)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"expected {name} to be an int from 1 up, got {number!r}")
    if cluster.observation.num_objects or cluster.action.num_objects:
        raise ValueError(
            f"expected spaces that are made of arrays, got {cluster.observation_space} and "
            f"{cluster.action_spaces.single}: a rollout is made of arrays"
        )
    if (autoreset := cluster.options.settings.autoreset) == "disabled":
        raise ValueError(
            f"expected autoreset='next_step' or 'same_step' for rollouts, got {autoreset!r}: "
            "a shard resets envs by itself"
        )
    if cluster.ledger.in_flight.any():
        raise StateError("expected no env in flight when rollouts begin; call recv or discard first")


def begin(cluster: ClusterEngine, policy: Any, steps: int, in_flight: int, seed: int | None) -> Rollouts:
    """See `ClusterPool.rollouts`."""
    cluster.driver.publisher.publish(policy)
    cluster.ledger.progress.lose_track()
    cluster.rollouts = Rollouts(cluster, steps, in_flight, secrets.randbits(64) if seed is None else seed)
    return cluster.rollouts
