"""Rollouts of all shards, whichever is done first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda._cluster import actors
from remuda._cluster.publisher import check_policy
from remuda._cluster.replies import RolloutReply
from remuda._cluster.station import Sent, Station, answered
from remuda._engine.rollouts.shard_rollout import ShardRollout, ShardRollouts
from remuda._wire.failures import load_exception
from remuda.errors import ClosedError, RemoteTraceback, StateError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from remuda._cluster.engine import ClusterEngine


class Rollouts(ShardRollouts):
    """Rollouts of the shards of a cluster."""

    def __init__(self, cluster: ClusterEngine, steps: int, in_flight: int) -> None:
        self._cluster, self._steps = cluster, steps
        self._asked: list[Sent] = []
        self._error: BaseException | None = None
        for station in cluster.fleet.stations:
            for _ in range(in_flight):
                self._ask(station)

    def _ask(self, station: Station) -> None:
        if station.error is None:
            version = self._cluster.driver.publisher.version
            self._asked.append(station.send("rollout", self._steps, version))

    def __next__(self) -> ShardRollout:
        while True:
            if self._cluster.closed:
                raise ClosedError("the pool is closed; make a new one")
            if self._error is not None:
                error, self._error = self._error, None
                self.close()
                raise error
            if not self._asked:
                raise StopIteration
            if (rollout := self._take(next(answered(self._oldest(), 1, None)))) is not None:
                return rollout

    def _oldest(self) -> list[Sent]:
        """Of each shard: the next one may have come over before it, from another machine."""
        oldest: dict[Station, Sent] = {}
        for sent in self._asked:
            oldest.setdefault(sent.station, sent)
        return list(oldest.values())

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
        self._ask(sent.station)
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
        """A shard is gone: the one that comes in its place is asked."""
        self._asked.remove(sent)
        lost = self._cluster.driver.died(sent, error, "step")
        if lost is not None:
            self._error = lost
            return
        self._ask(sent.station)

    def close(self) -> None:
        self._asked.clear()
        if self._cluster.rollouts is self:
            self._cluster.rollouts = None
            self._cluster.ledger.must_reset[:] = True


def _raised(reply: RolloutReply) -> BaseException:
    """What the policy has raised, with the traceback from there."""
    assert reply.raised is not None  # there is no rollout, and no env has failed
    name, message, text, pickled = reply.raised
    error = load_exception(text, pickled)
    if error is None:
        error = RuntimeError(f"the policy raised {name}: {message}")
        error.__cause__ = RemoteTraceback(text)
    return error


def check_rollouts(cluster: ClusterEngine, policy: Any, steps: int, in_flight: int) -> None:
    """Raises what `ClusterPool.rollouts` says."""
    check_policy(policy)
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
            "nobody would reset envs there"
        )
    if cluster.ledger.in_flight.any():
        raise StateError("expected no env in flight when rollouts begin; call recv or discard first")


def begin(cluster: ClusterEngine, policy: Any, steps: int, in_flight: int) -> Rollouts:
    """See `ClusterPool.rollouts`."""
    cluster.driver.publisher.publish(policy)
    cluster.ledger.progress.lose_track()
    cluster.rollouts = Rollouts(cluster, steps, in_flight)
    return cluster.rollouts
