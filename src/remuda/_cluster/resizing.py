"""Divides the envs of a pool among another number of shards, while it is open."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from remuda._cluster import actors
from remuda._cluster.engine import ClusterEngine
from remuda._cluster.replies import Answer, Legacy, ShardReport
from remuda._cluster.shares import Shares
from remuda._cluster.station import Sent, Station, answered
from remuda._relay.log import logger
from remuda.errors import RemudaError, StartTimeoutError, StateError


def check_resize(cluster: ClusterEngine, shards: int) -> None:
    """Raises what `ClusterPool.resize` says."""
    options, most = cluster.options, cluster.shares.num_envs // cluster.width
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= most:
        what = "envs" if cluster.width == 1 else "vector envs"
        raise ValueError(f"expected shards to be an int from 1 to {most} (the number of {what}), got {shards!r}")
    if options.where.placement not in ("auto", "spread"):
        raise ValueError(
            f"expected placement='auto' or 'spread' where a pool is resized, got {options.where.placement!r}: the room "
            "that Ray reserves for other placements can neither grow nor shrink"
        )
    if cluster.rollouts is not None:
        raise StateError("expected no rollouts under way when a pool is resized; call their close() first")
    if cluster.ledger.in_flight.any():
        raise StateError("expected no env in flight when a pool is resized; call recv or discard first")
    cluster.ledger.check_alive(range(cluster.shares.num_envs))


class Resizing:
    """Builds all envs anew, beside those that are there, in as many shards; then these take their places.

    So what cannot be built, or finds no room, costs nobody his env. Shards that stay keep their actors.
    """

    def __init__(self, cluster: ClusterEngine, shards: int) -> None:
        self._cluster, self._fleet, self._old = cluster, cluster.fleet, list(cluster.fleet.stations)
        self._shares = Shares(cluster.shares.num_envs // cluster.width, shards, cluster.width)
        self._factories = self._fleet.divided(self._shares)
        stays = self._old[:shards]
        self._new = [Station(share) for share in self._shares.each[len(stays) :]]
        self._stays = stays

    def build(self, timeout: float | None) -> list[ShardReport]:
        """Raises where something cannot be built. Then nothing has changed, unless a shard has died."""
        try:
            waiting = dict[Sent, int]()
            for station, share in zip(self._stays, self._shares.each, strict=False):
                plan = self._fleet.plan_of(share, self._factories[share.shard])
                waiting[station.send("prepare", share.first, *plan)] = share.shard
            for station in self._new:
                waiting[self._fleet.begin(station, None, self._factories[station.share.shard])] = station.share.shard
            return self._reports(waiting, timeout)
        except BaseException:
            self._give_up()
            raise

    def _reports(self, waiting: dict[Sent, int], timeout: float | None) -> list[ShardReport]:
        deadline = None if timeout is None else time.monotonic() + timeout
        reports = dict[int, ShardReport]()
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done = list(answered(waiting, 1, left))
            if not done:
                raise StartTimeoutError(
                    f"expected {len(self._shares.each)} shards to build their envs within {timeout} s, "
                    f"got {len(waiting)} that had not: the cluster may have no room for them yet. The pool is as before"
                )
            for sent in done:
                answer = self._answer(sent)
                if answer is not None:
                    reports[waiting.pop(sent)] = answer.value
        return [reports[shard] for shard in range(len(self._shares.each))]

    def _answer(self, sent: Sent) -> Answer | None:
        """None: it is under way again."""
        try:
            answer: Answer = actors.get(sent.ref)
        except actors.Lost as error:
            if self._fleet.starts_elsewhere(sent, error):
                return None
            death = self._fleet.death(sent.station, error, "build")
            if sent.station in self._stays:
                self._cluster.driver.died(sent, error, "build")
            raise death from error
        if (failure := self._fleet.note_rebuilt(sent)) is not None:
            raise failure
        if answer.error is not None:
            raise answer.error
        return answer

    def _give_up(self) -> None:
        for station in self._new:
            if station.actor is not None:
                self._fleet.cluster.kill(station.actor)
            station.forget()
        for station in self._stays:
            if station.error is None:
                station.send("drop_prepared")

    def take_places(self, reports: Sequence[ShardReport]) -> None:
        """From now on these shards are the pool's."""
        cluster, driver, ledger = self._cluster, self._cluster.driver, self._cluster.ledger
        stations = [*self._successors(), *self._new]
        for station, report in zip(stations, reports, strict=True):
            station.report, station.node = report, report.node
        ended = self._old[len(self._stays) :]
        closing = [station.actor.close.remote(_TO_CLOSE, False) for station in ended]
        self._fleet.take(stations, self._shares, self._factories)
        cluster.shares, cluster.reports, driver.shares = self._shares, list(reports), self._shares
        ledger.cut_off(range(self._shares.num_envs))
        self._tell(stations)
        self._end(ended, closing)

    def _successors(self) -> list[Station]:
        """The places of the shards that stay: what they were sent before, is answered to the old ones."""
        made = []
        for station, share in zip(self._stays, self._shares.each, strict=False):
            made.append(
                Station(share, station.actor, generation=station.generation, restarts=station.restarts, _kept=None)
            )
        for station in self._old:
            station.error = StateError(f"shard {station.share.shard} is no more: the pool was resized")
        return made

    def _tell(self, stations: Sequence[Station]) -> None:
        """What is to be known of the envs that each has now. Who dies of it is replaced, and his successor told."""
        driver, ledger = self._cluster.driver, self._cluster.ledger
        told = []
        for station in stations:
            options, standing = driver.standing.of(station.share)
            seeds = ledger.legacy_seeds(station.share.env_ids)
            first_worker = self._fleet.first_worker(station)
            told.append(station.send("take_over", Legacy(seeds, options, standing, first_worker=first_worker)))
        for sent in told:
            try:
                answer: Answer = actors.get(sent.ref)
            except actors.Lost as error:
                if not self._fleet.starts_elsewhere(sent, error):
                    driver.died(sent, error, "build")
                continue
            _log_failure(answer)

    def _end(self, ended: Sequence[Station], closing: Sequence[Any]) -> None:
        for ref in actors.wait(closing, len(closing), _TO_CLOSE + 2.0) if closing else ():
            try:
                _log_failure(actors.get(ref))
            except actors.Lost:
                continue  # it is gone, as it should be
        for station in ended:
            self._fleet.cluster.kill(station.actor)
            station.forget()


def _log_failure(answer: Answer) -> None:
    """Of envs that were closed: the pool goes on without them."""
    if isinstance(answer.error, RemudaError):
        logger.warning("%s", answer.error)
    answer.log_faults()


_TO_CLOSE = 10.0  # seconds that envs get to close
